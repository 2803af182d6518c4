//! What the device's memory gives: the ceiling that kernels are held against.

use std::time::Instant;

use glia_core::BackendError;

use super::{Gpu, Use};

/// Bytes of each of the two buffers: more than any cache on the way holds.
const BYTES: u64 = 256 << 20;

impl Gpu {
    /// Bytes per second that a copy between two buffers reads and writes, the best of several.
    ///
    /// # Errors
    /// When memory is out or the device is lost.
    pub fn copy_bandwidth(&self) -> Result<f64, BackendError> {
        let bytes = BYTES.min(self.caps.max_buffer_bytes & !3);
        let (a, b) = (
            self.buffer("measure", Use::Storage, bytes)?,
            self.buffer("measure", Use::Storage, bytes)?,
        );
        let mut best = 0f64;
        for _ in 0..5 {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            // Several copies in one submission hide what starting one costs.
            for _ in 0..4 {
                encoder.copy_buffer_to_buffer(a.buffer(), 0, b.buffer(), 0, bytes);
                encoder.copy_buffer_to_buffer(b.buffer(), 0, a.buffer(), 0, bytes);
            }
            let started = Instant::now();
            let index = self.submit("measure", encoder.finish())?;
            self.wait(Some(index))?;
            let seconds = started.elapsed().as_secs_f64().max(1e-9);
            best = best.max(8.0 * 2.0 * bytes as f64 / seconds);
        }
        Ok(best)
    }
}
