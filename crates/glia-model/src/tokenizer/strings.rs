//! Many short byte strings in one allocation, and a table that finds them: the memory form of a vocabulary.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// A list of byte strings stored end to end.
#[derive(Clone, Debug, Default)]
pub struct StringList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl StringList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list with room for so many strings, and for so many bytes of them.
    pub fn with_capacity(n_strings: usize, n_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(n_bytes),
            ends: Vec::with_capacity(n_strings),
        }
    }

    /// Adds a string at the end.
    pub fn push(&mut self, s: &[u8]) {
        self.bytes.extend_from_slice(s);
        self.ends.push(self.bytes.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `i`, or none past the end.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.bytes[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringList {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> Self {
        let mut list = Self::new();
        for item in items {
            list.push(item.as_ref());
        }
        list
    }
}

/// Free slot of the hash table.
const FREE: u32 = u32::MAX;

/// A [`StringList`] with lookup by content. Ids are positions in the list.
///
/// The hash is keyed at random, so a crafted vocabulary cannot make lookups slow. It is a light hash:
/// a vocabulary of a quarter of a million tokens is indexed before anything can be answered.
#[derive(Clone, Debug)]
pub(crate) struct StringTable {
    list: StringList,
    slots: Vec<u32>,
    hasher: RandomState,
}

impl StringTable {
    /// Indexes the list; `Err((a, b))` when the strings `a` and `b` are the same.
    pub(crate) fn new(list: StringList) -> Result<Self, (usize, usize)> {
        let n_slots = (list.len() * 2).next_power_of_two().max(8);
        let mut table = Self {
            list: StringList::new(),
            slots: vec![FREE; n_slots],
            hasher: RandomState::default(),
        };
        for (i, s) in list.iter().enumerate() {
            let mut slot = table.first_slot(s);
            while table.slots[slot] != FREE {
                let other = table.slots[slot] as usize;
                if list.get(other) == Some(s) {
                    return Err((other, i));
                }
                slot = (slot + 1) & (n_slots - 1);
            }
            table.slots[slot] = i as u32;
        }
        table.list = list;
        Ok(table)
    }

    fn first_slot(&self, s: &[u8]) -> usize {
        self.hasher.hash_one(s) as usize & (self.slots.len() - 1)
    }

    /// The id of a string.
    pub(crate) fn id(&self, s: &[u8]) -> Option<u32> {
        let mut slot = self.first_slot(s);
        loop {
            let id = self.slots[slot];
            if id == FREE {
                return None;
            }
            if self.list.get(id as usize) == Some(s) {
                return Some(id);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// The string with an id.
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        self.list.get(id as usize)
    }

    /// All strings in order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter()
    }
}
