//! EPUB to chapters: the files of its spine, in reading order, byte for byte as they are in the book.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use zip::ZipArchive;

use super::{TEXT_BYTES_MAX, Unread};
use crate::briefing::mapped::Mapped;
use crate::briefing::read::markup::{Dialect, Token, tokens};

/// Most files in a book.
const ENTRIES_MAX: usize = 5_000;
/// Most chapters that are read.
const CHAPTERS_MAX: usize = 500;
/// Largest file that tells where the others are, in bytes.
const INDEX_BYTES_MAX: u64 = 1024 * 1024;

/// A chapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chapter {
    /// `001-opening.xhtml`: its place in the book, and the name of its file there.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads the chapters.
pub(crate) fn chapters(bytes: &[u8]) -> Result<Vec<Chapter>, Unread> {
    let broken = |what: &str| ("epub-broken", format!("it is no EPUB that can be read: {what}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| broken("it is no ZIP archive"))?;
    if archive.len() > ENTRIES_MAX {
        return Err(("epub-too-long", format!("it has {} files; at most {ENTRIES_MAX} are looked at", archive.len())));
    }
    let container = entry(&mut archive, "META-INF/container.xml", INDEX_BYTES_MAX)?
        .ok_or_else(|| broken("META-INF/container.xml is missing"))?;
    let package = elements(&container)
        .into_iter()
        .find_map(|token| {
            (named(&token) == "rootfile").then(|| token.attribute("full-path").map(str::to_owned)).flatten()
        })
        .ok_or_else(|| broken("META-INF/container.xml names no package"))?;
    if entry(&mut archive, "META-INF/encryption.xml", INDEX_BYTES_MAX)?
        .is_some_and(|text| text.contains("EncryptedData"))
    {
        return Err(("epub-encrypted", "parts of it are encrypted; give a copy without protection".to_owned()));
    }
    let index = entry(&mut archive, &package, INDEX_BYTES_MAX)?.ok_or_else(|| broken("its package is missing"))?;
    let folder = package.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut spine: Vec<String> = Vec::new();
    for token in elements(&index) {
        match named(&token) {
            "item" => {
                let is_text = token.attribute("media-type").is_some_and(|kind| kind.contains("html"));
                let is_contents =
                    token.attribute("properties").is_some_and(|all| all.split(' ').any(|one| one == "nav"));
                if let (Some(id), Some(href), true, false) =
                    (token.attribute("id"), token.attribute("href"), is_text, is_contents)
                {
                    files.insert(id.to_owned(), href.to_owned());
                }
            }
            "itemref" => spine.extend(token.attribute("idref").map(str::to_owned)),
            _ => {}
        }
    }
    let mut chapters = Vec::new();
    let mut left = TEXT_BYTES_MAX as u64;
    for href in spine.iter().filter_map(|id| files.get(id)) {
        let Some(path) = inside(folder, href) else { continue };
        let Some(text) = entry(&mut archive, &path, left)? else { continue };
        left = left.saturating_sub(text.len() as u64);
        if chapters.len() >= CHAPTERS_MAX {
            return Err(("epub-too-long", format!("it has more than {CHAPTERS_MAX} chapters")));
        }
        let file = path.rsplit('/').next().unwrap_or(&path);
        if !text.trim().is_empty() {
            chapters.push(Chapter { name: format!("{:03}-{file}", chapters.len() + 1), text });
        }
    }
    if chapters.is_empty() {
        return Err(("epub-without-text", "its reading order names no chapter that is there".to_owned()));
    }
    Ok(chapters)
}

/// A file of the archive as text; `None` if it is not there. What is larger than `most` bytes, however small it was
/// packed, is refused while it is unpacked.
fn entry(archive: &mut ZipArchive<Cursor<&[u8]>>, name: &str, most: u64) -> Result<Option<String>, Unread> {
    let Ok(file) = archive.by_name(name) else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|_| ("epub-broken", "one of its files cannot be unpacked".to_owned()))?;
    if bytes.len() as u64 > most {
        return Err(("source-too-large", "it has more than 2 MiB of text once it is unpacked".to_owned()));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| ("source-not-utf8", "one of its chapters is not UTF-8".to_owned()))
}

fn elements(xml: &str) -> Vec<Token> {
    tokens(&Mapped::source(xml), Dialect::Xml)
}

fn named(token: &Token) -> &str {
    match token {
        Token::Open { name, .. } => name,
        Token::Text(_) | Token::Close { .. } => "",
    }
}

/// A path of the archive; `None` if it leads out of it. A name like any other: nothing is ever opened on a disk.
fn inside(folder: &str, href: &str) -> Option<String> {
    let href = href.split(['#', '?']).next().unwrap_or_default().replace("%20", " ");
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in href.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// An archive of these files.
    pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    const CONTAINER: &[u8] = b"<container><rootfiles><rootfile full-path=\"OEBPS/book.opf\"/></rootfiles></container>";

    pub(crate) fn book(chapters: &[(&str, &[u8])]) -> Vec<u8> {
        let mut index = "<package><manifest><item id=\"nav\" href=\"nav.xhtml\" media-type=\"application/xhtml+xml\" \
                         properties=\"nav\"/>"
            .to_owned();
        let mut spine = "<itemref idref=\"nav\"/>".to_owned();
        for (name, _) in chapters {
            index.push_str(&format!("<item id=\"{name}\" href=\"text/{name}\" media-type=\"application/xhtml+xml\"/>"));
            spine.push_str(&format!("<itemref idref=\"{name}\"/>"));
        }
        let index = format!("{index}</manifest><spine>{spine}</spine></package>");
        let paths: Vec<String> = chapters.iter().map(|(name, _)| format!("OEBPS/text/{name}")).collect();
        let mut files: Vec<(&str, &[u8])> = vec![
            ("mimetype", b"application/epub+zip"),
            ("META-INF/container.xml", CONTAINER),
            ("OEBPS/book.opf", index.as_bytes()),
        ];
        files.push(("OEBPS/nav.xhtml", b"<nav>contents</nav>"));
        files.extend(paths.iter().zip(chapters).map(|(path, (_, text))| (path.as_str(), *text)));
        archive(&files)
    }

    #[test]
    fn chapters_come_in_reading_order_byte_for_byte_and_without_the_contents() {
        let bytes = book(&[("b.xhtml", b"<h1>First</h1>"), ("a.xhtml", b"<h1>Second</h1>")]);
        let chapters = chapters(&bytes).unwrap();
        let rows: Vec<(&str, &str)> = chapters.iter().map(|one| (one.name.as_str(), one.text.as_str())).collect();
        assert_eq!(rows, [("001-b.xhtml", "<h1>First</h1>"), ("002-a.xhtml", "<h1>Second</h1>")]);
    }

    #[test]
    fn a_bomb_is_stopped_while_it_is_unpacked() {
        let bomb = vec![b' '; 64 * 1024 * 1024];
        let bytes = book(&[("a.xhtml", &bomb)]);
        assert!(bytes.len() < 1024 * 1024, "small when packed");
        assert_eq!(chapters(&bytes).unwrap_err().0, "source-too-large");
    }

    #[test]
    fn what_is_no_book_is_refused_by_its_code() {
        assert_eq!(chapters(b"PK\x03\x04 nothing").unwrap_err().0, "epub-broken");
        assert_eq!(chapters(&archive(&[("a.txt", b"x")])).unwrap_err().0, "epub-broken");
        assert_eq!(chapters(&book(&[])).unwrap_err().0, "epub-without-text");
        assert_eq!(chapters(&book(&[("a.xhtml", b"caf\xe9")])).unwrap_err().0, "source-not-utf8");
        let locked =
            archive(&[("META-INF/container.xml", CONTAINER), ("META-INF/encryption.xml", b"<EncryptedData/>")]);
        assert_eq!(chapters(&locked).unwrap_err().0, "epub-encrypted");
        let many: Vec<(String, &[u8])> = (0..ENTRIES_MAX + 1).map(|n| (format!("{n}"), b"".as_slice())).collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        assert_eq!(chapters(&archive(&many)).unwrap_err().0, "epub-too-long");
        let whole = book(&[("a.xhtml", b"<p>Some words here.</p>")]);
        for at in (0..whole.len()).step_by(5) {
            let mut bent = whole.clone();
            bent[at] ^= 0xff;
            let _ = chapters(&bent);
            let _ = chapters(&whole[..at]);
        }
    }

    #[test]
    fn a_path_never_leads_out_of_the_book() {
        assert_eq!(inside("OEBPS", "../../etc/passwd"), None);
        assert_eq!(inside("OEBPS/x", "../text/a%20b.xhtml#part").as_deref(), Some("OEBPS/text/a b.xhtml"));
    }
}
