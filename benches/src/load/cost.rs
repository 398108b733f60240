//! What processes have used so far, as Linux counts it.

use std::collections::BTreeSet;
use std::fs;

use super::Failure;

/// Linux tells processor time in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// A reading of one or more processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// User and system time, in seconds.
    pub cpu_s: f64,
    /// Bytes that were given to the disk.
    pub written: u64,
    /// Memory now, in bytes.
    pub rss: u64,
}

impl Used {
    /// Reads the counters of one process.
    pub fn by(pid: u32) -> Result<Self, Failure> {
        Ok(Self { cpu_s: cpu_s(pid, false)?, written: written(pid), rss: rss(pid) })
    }

    /// Reads the counters of a process with its children, those that have ended and those that live: a PostgreSQL by its
    /// postmaster.
    pub fn by_family(parent: u32) -> Result<Self, Failure> {
        let mut used = Self { cpu_s: cpu_s(parent, true)?, written: written(parent), rss: rss(parent) };
        for child in children(parent) {
            // One that has just ended is counted by its parent.
            used.cpu_s += cpu_s(child, false).unwrap_or_default();
            used.written += written(child);
            used.rss += rss(child);
        }
        Ok(used)
    }

    /// What was used since an earlier reading; memory as it is now.
    pub fn since(self, before: Self) -> Self {
        let written = self.written.saturating_sub(before.written);
        Self { cpu_s: self.cpu_s - before.cpu_s, written, rss: self.rss }
    }
}

fn stat(pid: u32) -> Result<Vec<String>, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything, also a parenthesis.
    let (_, rest) = stat.rsplit_once(')').ok_or("a process cannot be read")?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

fn cpu_s(pid: u32, with_ended_children: bool) -> Result<f64, Failure> {
    let fields = stat(pid)?;
    // utime, stime, cutime, cstime stand at 14 to 17 of the whole line, and two were cut off.
    let count = if with_ended_children { 4 } else { 2 };
    let ticks: u64 = fields.iter().skip(11).take(count).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

fn written(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1_024
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        stat(*pid).is_ok_and(|fields| fields.get(1).and_then(|ppid| ppid.parse::<u32>().ok()) == Some(parent))
    };
    processes().filter(is_child).collect()
}

/// The process that listens on a TCP port of this machine, if this user may see it: the first that holds the socket.
pub fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Address and port in hex, and the state: 0A is listening.
    let listening = lines.filter(|fields| fields.get(3) == Some(&"0A"));
    let ours = listening.filter(|fields| fields[1].ends_with(&format!(":{port:04X}")));
    let sockets: BTreeSet<String> =
        ours.filter_map(|fields| fields.get(9).map(|inode| format!("socket:[{inode}]"))).collect();
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
    };
    // A parent was there before its children.
    processes().filter(holds).min()
}
