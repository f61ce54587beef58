//! Draws who held a lock, waited for it, lost it and took it over, over time: as text for a terminal, or as an SVG.

mod event;
mod picture;
mod spans;
mod text;

pub use event::{Change, Event};
pub use picture::svg;
pub use text::text;
