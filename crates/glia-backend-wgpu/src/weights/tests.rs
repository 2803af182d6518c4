//! Packed rows against the decoder of the core.
