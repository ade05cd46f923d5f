//! Rules that the compiler does not know.
