//! What a recorded call can be told to do wrong.

use crate::{Backend, BackendError, DType, Tensor};

/// A fault in the place of a call's result. Calls without outputs fail or panic; of `commit`, `rollback`, `truncate`
/// and `free`, which cannot fail, only [`Fault::Panics`] is heeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not made and returns an error.
    Fails,
    /// The call is not made and returns [`BackendError::DeviceLost`]: whoever made it may take the program for lost.
    LosesDevice,
    /// The call is not made and panics.
    Panics,
    /// The outputs are missing.
    NoOutput,
    /// There is one output too many.
    ExtraOutput,
    /// The first output has another shape.
    WrongShape,
    /// The first output is I32.
    WrongDType,
    /// The first output, if F32, is all NaN.
    NaN,
}

impl Fault {
    /// Every fault that makes the outputs of a call wrong, or the call return an error, on a device that stays.
    pub const ALL_BUT_PANICS: [Fault; 6] = [
        Fault::Fails,
        Fault::NoOutput,
        Fault::ExtraOutput,
        Fault::WrongShape,
        Fault::WrongDType,
        Fault::NaN,
    ];

    /// What happens instead of the call.
    pub(super) fn before(self) -> Result<(), BackendError> {
        match self {
            Fault::Fails => Err(BackendError::Other("told to".into())),
            Fault::LosesDevice => Err(BackendError::DeviceLost {
                reason: "told to".to_owned(),
            }),
            Fault::Panics => panic!("told to"),
            _ => Ok(()),
        }
    }

    /// What happens to the outputs of the call, which lie in the memory of `backend` or on the host.
    pub(super) fn after(self, backend: &dyn Backend, outputs: &mut Vec<Tensor>) -> Result<(), BackendError> {
        if self == Fault::NoOutput {
            outputs.clear();
        }
        let Some(first) = outputs.first().cloned() else {
            return Ok(());
        };
        let on_host = first.check_on_host().is_ok();
        let place = |host: Tensor| if on_host { Ok(host) } else { backend.upload(&host) };
        match self {
            Fault::ExtraOutput => outputs.push(first),
            Fault::WrongShape => outputs[0] = place(Tensor::zeros(DType::F32, [1, 1, 7])?)?,
            Fault::WrongDType => outputs[0] = place(Tensor::zeros(DType::I32, *first.shape())?)?,
            Fault::NaN if first.dtype() == DType::F32 => {
                let mut host = if on_host { first } else { backend.download(&first)? };
                host.as_f32_mut()?.fill(f32::NAN);
                outputs[0] = place(host)?;
            }
            Fault::NaN | Fault::NoOutput | Fault::Fails | Fault::LosesDevice | Fault::Panics => {}
        }
        Ok(())
    }
}
