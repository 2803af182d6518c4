//! Rendered chat templates against those of the reference.
