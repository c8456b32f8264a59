//! Bytes as hexadecimal digits, for records and tokens.

use std::fmt::Write;

/// The bytes as lower-case digits.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The bytes that the lower-case digits stand for.
pub(crate) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    hex.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&hex_of(&all)), Some(all));
        assert_eq!(hex_of(&[0, 0xa5]), "00a5");
        for wrong in ["0", "0g", "0A", "+1", "é"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
