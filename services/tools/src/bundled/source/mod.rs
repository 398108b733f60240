//! `source.fetch`: files, feeds and pages as documents that later steps can quote.

pub(crate) mod document;
mod feed;
mod html;
mod local;
