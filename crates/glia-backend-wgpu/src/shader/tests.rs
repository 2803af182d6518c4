//! Every kernel is valid WGSL in every variant.
