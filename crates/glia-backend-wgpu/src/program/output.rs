//! Tensors on the device: what a step returns, and copies between host and device outside of steps.

use std::sync::{Arc, Mutex, PoisonError};

use glia_core::{BackendError, DType, Shape, Tensor, TensorError};

use crate::gpu::{Gpu, Pooled, Use};

/// The handle of a tensor of this backend.
pub(crate) struct DeviceTensor {
    pub gpu: Arc<Gpu>,
    /// The bytes as kernels know them: F32 and I32 are words, everything else is as on the host.
    pub data: Pooled,
    /// A copy that the host can map, written in the submission that made the tensor.
    readback: Mutex<Option<Readback>>,
}

struct Readback {
    buffer: Pooled,
    submission: wgpu::SubmissionIndex,
}

impl DeviceTensor {
    pub fn new(gpu: &Arc<Gpu>, data: Pooled) -> DeviceTensor {
        DeviceTensor {
            gpu: gpu.clone(),
            data,
            readback: Mutex::new(None),
        }
    }

    /// Adds the copy that the host maps.
    pub fn with_readback(self, buffer: Pooled, submission: wgpu::SubmissionIndex) -> DeviceTensor {
        *self.readback.lock().unwrap_or_else(PoisonError::into_inner) = Some(Readback { buffer, submission });
        self
    }

    /// The handle within a tensor, if it is one of this device.
    pub fn of<'a>(gpu: &Gpu, tensor: &'a Tensor) -> Option<&'a DeviceTensor> {
        let handle = tensor.device_handle()?.downcast_ref::<DeviceTensor>()?;
        // A tensor that claims more than its buffer holds is as one of another device.
        let whole = handle.data.size() >= tensor.size_bytes() as u64;
        (whole && std::ptr::eq(Arc::as_ptr(&handle.gpu), gpu)).then_some(handle)
    }
}

/// A host tensor on the device.
///
/// # Errors
/// When memory is out or the device is lost.
pub(crate) fn upload(gpu: &Arc<Gpu>, host: &Tensor) -> Result<Tensor, BackendError> {
    let data = gpu.buffer("upload", Use::Storage, host.size_bytes() as u64)?;
    gpu.write(data.buffer(), 0, host.bytes()?)?;
    Ok(Tensor::device(
        host.dtype(),
        *host.shape(),
        Arc::new(DeviceTensor::new(gpu, data)),
    )?)
}

/// A device tensor on the host. Waits for the device.
///
/// # Errors
/// For a tensor of another device, and when the device is lost.
pub(crate) fn download(gpu: &Arc<Gpu>, tensor: &Tensor) -> Result<Tensor, BackendError> {
    if tensor.check_on_host().is_ok() {
        return Ok(tensor.clone());
    }
    let handle = DeviceTensor::of(gpu, tensor).ok_or(TensorError::NotOnHost)?;
    let bytes = tensor.size_bytes() as u64;
    let mut readback = handle.readback.lock().unwrap_or_else(PoisonError::into_inner);
    let ready = match readback.take() {
        Some(ready) => ready,
        None => {
            let buffer = gpu.buffer("readback", Use::Readback, bytes)?;
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            copy(&mut encoder, &handle.data, &buffer, bytes);
            let submission = gpu.submit("readback", encoder.finish())?;
            Readback { buffer, submission }
        }
    };
    let host = gpu.read(&ready.buffer, &ready.submission, tensor.dtype(), tensor.shape());
    // Another download of the same tensor reads the same copy.
    *readback = Some(ready);
    host
}

/// Records a copy of the first `bytes`, rounded up to whole words.
pub(super) fn copy(encoder: &mut wgpu::CommandEncoder, from: &Pooled, to: &Pooled, bytes: u64) {
    let bytes = bytes.next_multiple_of(4).min(from.size()).min(to.size());
    if bytes > 0 {
        encoder.copy_buffer_to_buffer(from.buffer(), 0, to.buffer(), 0, bytes);
    }
}

impl Gpu {
    /// Queues bytes to be written before the next submission.
    ///
    /// # Errors
    /// What validation says.
    pub fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.count_written(bytes.len())?;
        let whole = bytes.len() & !3;
        self.scoped("write", || {
            if whole > 0 {
                self.queue.write_buffer(buffer, offset, &bytes[..whole]);
            }
            if whole < bytes.len() {
                let mut last = [0; 4];
                last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
                self.queue.write_buffer(buffer, offset + whole as u64, &last);
            }
        })
    }

    fn read(
        &self,
        buffer: &Pooled,
        submission: &wgpu::SubmissionIndex,
        dtype: DType,
        shape: &Shape,
    ) -> Result<Tensor, BackendError> {
        let mut host = Tensor::zeros(dtype, *shape)?;
        let bytes = host.size_bytes();
        if bytes == 0 {
            return Ok(host);
        }
        let slice = buffer.buffer().slice(..bytes.next_multiple_of(4) as u64);
        let (sender, receiver) = std::sync::mpsc::channel();
        self.scoped("readback", || {
            slice.map_async(wgpu::MapMode::Read, move |result| {
                // The receiver may have given up.
                let _ = sender.send(result);
            });
        })?;
        self.wait(Some(submission.clone()))?;
        let mapped = receiver.recv().map_err(|e| crate::gpu::other(&e))?;
        mapped.map_err(|e| crate::gpu::other(&e))?;
        let view = slice.get_mapped_range().map_err(|e| crate::gpu::other(&e))?;
        host.bytes_mut()?.copy_from_slice(&view[..bytes]);
        drop(view);
        buffer.buffer().unmap();
        self.count_read(bytes);
        Ok(host)
    }
}
