//! Readers: each makes blocks of readable text of one format, and remembers where each piece stands in its source.

pub(crate) mod feed;
pub(crate) mod head;
pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod markup;
pub(crate) mod plain;
