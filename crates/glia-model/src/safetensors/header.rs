//! A second look at a safetensors header, which names the tensor at fault: the `safetensors` crate says only that there is
//! one, and keeps the last of two tensors with one name.

use std::collections::HashSet;
use std::fmt;

use safetensors::tensor::TensorInfo;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::SafetensorsError;

/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// A tensor and what is wrong with it.
pub(super) struct Fault {
    tensor: String,
    reason: String,
}

impl Fault {
    pub fn of(self, file: &str) -> SafetensorsError {
        SafetensorsError::Tensor {
            file: file.to_owned(),
            tensor: self.tensor,
            reason: self.reason,
        }
    }
}

/// The JSON behind the length, where both are there.
fn json(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(*head);
    // One beyond the cap is not looked at.
    if len > super::MAX_HEADER_BYTES {
        return None;
    }
    rest.get(..usize::try_from(len).ok()?)
}

/// The first name that is there twice.
pub(super) fn twice(bytes: &[u8]) -> Option<Fault> {
    let mut seen = HashSet::new();
    each(json(bytes)?, |name, _: IgnoredAny| {
        if seen.contains(&name) {
            let reason = "is there twice: the file was written wrongly".to_owned();
            return Some(Fault { tensor: name, reason });
        }
        seen.insert(name);
        None
    })
}

/// The first tensor whose entry cannot be believed.
pub(super) fn fault(bytes: &[u8]) -> Option<Fault> {
    let header = json(bytes)?;
    let data_bytes = bytes.len() - 8 - header.len();
    each(header, |tensor, entry: Value| {
        let reason = entry_fault(&tensor, &entry, data_bytes)?;
        Some(Fault { tensor, reason })
    })
}

fn entry_fault(name: &str, entry: &Value, data_bytes: usize) -> Option<String> {
    if name == METADATA {
        return None;
    }
    let info: TensorInfo = match serde_json::from_value(entry.clone()) {
        Ok(info) => info,
        Err(e) => return Some(format!("its entry in the header is damaged: {e}")),
    };
    let (start, end) = info.data_offsets;
    let bits = info
        .shape
        .iter()
        .try_fold(info.dtype.bitsize(), |n, &d| n.checked_mul(d));
    let Some(bits) = bits else {
        return Some(format!("dimensions {:?} overflow", info.shape));
    };
    if end < start || end > data_bytes {
        return Some(format!(
            "its data lie from byte {start} to {end}, the file holds {data_bytes} bytes of data: it is incomplete \
             or damaged; fetch it again"
        ));
    }
    (bits.div_ceil(8) != end - start).then(|| {
        format!(
            "{:?} of {:?} needs {} bytes, the header gives it {}: the file is damaged; fetch it again",
            info.shape,
            info.dtype,
            bits.div_ceil(8),
            end - start
        )
    })
}

/// Calls `look` with each entry of an object until it finds something; JSON that breaks off ends the walk.
fn each<V: for<'de> serde::Deserialize<'de>>(
    json: &[u8],
    look: impl FnMut(String, V) -> Option<Fault>,
) -> Option<Fault> {
    struct Walk<F, V>(F, std::marker::PhantomData<V>);

    impl<'de, V: serde::Deserialize<'de>, F: FnMut(String, V) -> Option<Fault>> Visitor<'de> for Walk<F, V> {
        type Value = Option<Fault>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<Option<Fault>, M::Error> {
            let mut found = None;
            while let Some((name, entry)) = map.next_entry::<String, V>()? {
                if found.is_none() {
                    found = (self.0)(name, entry);
                }
            }
            Ok(found)
        }
    }

    let mut reader = serde_json::Deserializer::from_slice(json);
    reader
        .deserialize_map(Walk(look, std::marker::PhantomData))
        .ok()
        .flatten()
}
