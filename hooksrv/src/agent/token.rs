//! The text that lets a host ask to join: `muster1:<master's address>:<CA digest>:<secret>`, in one line.

use std::{fmt, net::SocketAddr, str::FromStr};

use muster_proto::transport::Fingerprint;

/// The form's name and version.
const FORM: &str = "muster1:";
/// The longest secret, in characters; a token has 32.
const SECRET_CHARS_MAX: usize = 128;

/// A token, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The master's address.
    pub master: SocketAddr,
    /// SHA-256 of the CA's certificate.
    pub ca_digest: Fingerprint,
    secret: String,
}

/// A text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no join token (it must be the one line that `gnt-node token create` printed): {0}")]
pub struct TokenError(&'static str);

impl Token {
    /// What the master checks.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

/// The secret is not for logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("master", &self.master)
            .field("ca_digest", &self.ca_digest)
            .finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let rest = text.trim().strip_prefix(FORM).ok_or(TokenError("it does not begin with muster1:"))?;
        // From the right: an IPv6 address has colons of its own.
        let mut parts = rest.rsplitn(3, ':');
        let (Some(secret), Some(digest), Some(master)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(TokenError("a part is missing"));
        };
        if secret.is_empty()
            || secret.len() > SECRET_CHARS_MAX
            || !secret.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(TokenError("its secret is not hexadecimal"));
        }
        Ok(Token {
            master: master.parse().map_err(|_| TokenError("its address is none"))?,
            ca_digest: digest.parse().map_err(|_| TokenError("its CA digest is none"))?,
            secret: secret.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_apart() {
        let digest = "ab".repeat(32);
        for address in ["127.0.0.1:1810", "[2001:db8::1]:1810"] {
            let token: Token = format!("muster1:{address}:{digest}:00ff\n").parse().unwrap();
            assert_eq!((token.master.to_string().as_str(), token.secret()), (address, "00ff"));
            assert!(!format!("{token:?}").contains("00ff"));
        }
        for wrong in [
            String::new(),
            format!("muster2:127.0.0.1:1810:{digest}:00ff"),
            format!("muster1:127.0.0.1:{digest}:00ff"),
            "muster1:127.0.0.1:1810:abc:00ff".to_owned(),
            format!("muster1:127.0.0.1:1810:{digest}:"),
            format!("muster1:127.0.0.1:1810:{digest}:secret"),
            format!("muster1:127.0.0.1:1810:{digest}:00ff\nmore"),
        ] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
