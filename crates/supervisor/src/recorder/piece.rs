//! What a recording holds of an image of the program, for a machine that joins: pieces of the image, in order, and its end; or why there
//! is none.
//!
//! The recorder writes it in between the events, behind the place that the image is of. So an image goes the way of the log: it is sent,
//! kept and acknowledged with it, and a machine that comes later finds it there.

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// An image is of this place; it comes now.
    Begin,
    /// The next bytes of an image, and which of them stand before.
    Bytes {
        /// Before these.
        at: u64,
        /// They.
        bytes: Vec<u8>,
    },
    /// It is whole.
    End {
        /// Its length.
        length: u64,
        /// Its checksum (CRC-32C).
        checksum: u32,
    },
    /// There is none, for this reason.
    None(String),
}

const BYTES: u8 = 1;
const END: u8 = 2;
const NONE: u8 = 3;
const BEGIN: u8 = 4;

impl Piece {
    /// As it lies in the recording.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Piece::Begin => vec![BEGIN],
            Piece::Bytes { at, bytes } => {
                let mut to = Vec::with_capacity(9 + bytes.len());
                to.push(BYTES);
                to.extend_from_slice(&at.to_le_bytes());
                to.extend_from_slice(bytes);
                to
            }
            Piece::End { length, checksum } => {
                let mut to = vec![END];
                to.extend_from_slice(&length.to_le_bytes());
                to.extend_from_slice(&checksum.to_le_bytes());
                to
            }
            Piece::None(why) => [&[NONE], why.as_bytes()].concat(),
        }
    }

    /// What lies there, if it is one.
    pub fn of(bytes: &[u8]) -> Option<Piece> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            BYTES => {
                let (at, bytes) = rest.split_first_chunk()?;
                Some(Piece::Bytes { at: u64::from_le_bytes(*at), bytes: bytes.to_vec() })
            }
            END => {
                let (length, rest) = rest.split_first_chunk()?;
                let checksum = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Piece::End { length: u64::from_le_bytes(*length), checksum })
            }
            BEGIN => rest.is_empty().then_some(Piece::Begin),
            NONE => Some(Piece::None(String::from_utf8_lossy(rest).replace(char::is_control, "?"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back_and_nothing_else() {
        let all = [
            Piece::Begin,
            Piece::Bytes { at: 7, bytes: vec![1, 2, 3] },
            Piece::End { length: 1 << 40, checksum: 0xdead_beef },
            Piece::None("it has several processes".into()),
        ];
        for piece in all {
            let bytes = piece.to_bytes();
            assert_eq!(Piece::of(&bytes), Some(piece.clone()));
            for cut in 0..bytes.len() {
                assert_ne!(Piece::of(&bytes[..cut]), Some(piece.clone()), "cut at {cut}");
            }
        }
        assert_eq!(Piece::of(&[]), None);
        assert_eq!(Piece::of(&[9, 1]), None);
    }
}
