//! Numbers and texts as bytes, and back without trust in any of them.

/// What is wrong with a content. The reader adds where.
pub type Fault = String;

/// Appends values.
#[derive(Debug, Default)]
pub struct Put(pub Vec<u8>);

impl Put {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn text(&mut self, value: &[u8]) {
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
    }
    pub fn list<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Put, &T)) {
        varint(&mut self.0, values.len() as u64);
        values.iter().for_each(|value| each(self, value));
    }
}

/// Appends `value` in groups of seven bits, the lowest first.
#[inline]
pub fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A number near zero as a small one without a sign.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    (value << 1) as u64 ^ (value >> 63) as u64
}

/// The opposite of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Takes values from the front of bytes that may be anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Get<'a>(pub &'a [u8]);

impl<'a> Get<'a> {
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let Some((taken, rest)) = self.0.split_at_checked(bytes) else {
            return Err(format!("{bytes} bytes are wanted where {} are left", self.0.len()));
        };
        self.0 = rest;
        Ok(taken)
    }
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        Ok(self.take(N)?.try_into().expect("take gives as many as it was asked for"))
    }
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits".into())
    }
    /// A varint that has to fit.
    #[inline]
    pub fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, Fault> {
        let value = self.varint()?;
        T::try_from(value).map_err(|_| format!("{value} is no {what}"))
    }
    pub fn text(&mut self) -> Result<&'a [u8], Fault> {
        let bytes = self.number("length")?;
        self.take(bytes)
    }
    /// A list whose items take at least one byte each, so that it cannot ask for more memory than it has bytes.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Get<'a>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count: usize = self.number("count")?;
        if count > self.0.len() {
            return Err(format!("a list of {count} in {} bytes", self.0.len()));
        }
        (0..count).map(|_| each(self)).collect()
    }
    /// Complains about what is left.
    pub fn end(&self) -> Result<(), Fault> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes too many")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!((Get(&bytes).varint(), unzigzag(zigzag(value as i64))), (Ok(value), value as i64));
        }
        assert!(Get(&[0xff; 12]).varint().is_err());
        assert!(Get(&[0x80]).varint().is_err());
    }

    #[test]
    fn a_list_longer_than_its_bytes_is_refused_before_it_is_made() {
        let mut bytes = Vec::new();
        varint(&mut bytes, u64::MAX >> 2);
        assert!(Get(&bytes).list(|get| get.u8()).is_err());
    }
}
