//! Notices as they travel: `<sender> <what> <of which>` in ASCII. Whatever reads otherwise is somebody else's, or of another
//! version, and is passed over.

use signalbox_domain::ids::RunKey;
use signalbox_ports::bus::Notice;
use uuid::Uuid;

/// No message of ours is longer.
const MESSAGE_BYTES_MAX: usize = 128;

/// One node's end of the bus, by a name that it made up when it began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender(pub(crate) Uuid);

pub(crate) fn written(sender: Sender, notice: Notice) -> Option<String> {
    let sender = sender.0.simple();
    match notice {
        Notice::Governance(epoch) => Some(format!("{sender} governance {epoch}")),
        Notice::Inbox(run) => Some(format!("{sender} inbox {}", run.uuid().simple())),
        Notice::Moved(run) => Some(format!("{sender} moved {}", run.uuid().simple())),
        Notice::Watched(run) => Some(format!("{sender} watched {}", run.uuid().simple())),
        // A node's own affair.
        Notice::Missed => None,
    }
}

pub(crate) fn read(bytes: &[u8]) -> Option<(Sender, Notice)> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
    let (sender, what, which) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let sender = Sender(Uuid::try_parse(sender).ok()?);
    let run = || Uuid::try_parse(which).ok().map(RunKey::new);
    let notice = match what {
        "governance" => Notice::Governance(which.parse().ok()?),
        "inbox" => Notice::Inbox(run()?),
        "moved" => Notice::Moved(run()?),
        "watched" => Notice::Watched(run()?),
        _ => return None,
    };
    Some((sender, notice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let (sender, run) = (Sender(Uuid::from_u128(7)), RunKey::new(Uuid::from_u128(9)));
        for notice in [Notice::Governance(u64::MAX), Notice::Inbox(run), Notice::Moved(run), Notice::Watched(run)] {
            assert_eq!(read(written(sender, notice).unwrap_or_default().as_bytes()), Some((sender, notice)));
        }
        assert_eq!(written(sender, Notice::Missed), None);
    }

    #[test]
    fn whatever_else_is_said_is_passed_over() {
        let name = Uuid::from_u128(7).simple().to_string();
        let long = "9".repeat(MESSAGE_BYTES_MAX);
        let texts = [
            String::new(),
            " ".to_owned(),
            "governance 1".to_owned(),
            format!("{name} governance"),
            format!("{name} governance -1"),
            format!("{name} governance 18446744073709551616"),
            format!("{name} governance 1 2"),
            format!("{name} governance {long}"),
            format!("{name} inbox nobody"),
            format!("{name} inbox \0"),
            format!("{name} shutdown now"),
            "nobody governance 1".to_owned(),
            "{\"cluster\":\"x\",\"epoch\":3}".to_owned(),
        ];
        for text in texts {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(&[0xff, 0xfe, 0x00]), None);
        assert_eq!(read(&vec![b'a'; 10 << 20]), None);
    }
}
