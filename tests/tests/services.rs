//! The services that `make test` promises are really there.
//!
//! A suite that quietly goes without its database proves nothing, so these fail where others would skip. They speak just
//! enough of each protocol to know who answers, and need no client library.

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpStream, ToSocketAddrs as _};
    use std::time::Duration;

    use url::Url;

    const ANSWER_WITHIN: Duration = Duration::from_secs(5);

    fn service(variable: &str, default_port: u16) -> (Url, TcpStream) {
        let text =
            std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run it through make test"));
        let url = Url::parse(&text).unwrap_or_else(|error| panic!("{variable} is not an address: {error}"));
        let host = url.host_str().unwrap_or("127.0.0.1").to_owned();
        let port = url.port().unwrap_or(default_port);
        let address = (host.as_str(), port).to_socket_addrs().unwrap().next().unwrap();
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)
            .unwrap_or_else(|error| panic!("nothing answers at {address} ({error}): run it through make test"));
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        (url, stream)
    }

    #[test]
    fn postgresql_answers_at_the_address_the_tests_are_given() {
        let (_, mut stream) = service("SIGNALBOX_TEST_DATABASE_URL", 5432);
        // SSLRequest: its length, then the number 80877103. PostgreSQL answers one letter: S for yes, N for no.
        stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).unwrap();
        let mut letter = [0];
        stream.read_exact(&mut letter).unwrap();
        assert!(matches!(&letter, b"S" | b"N"), "that is not PostgreSQL: it answered {letter:?}");
    }

    #[test]
    fn redis_answers_a_ping_at_the_address_the_tests_are_given() {
        let (url, mut stream) = service("REDIS_URL", 6379);
        let mut asked = Vec::new();
        if let Some(password) = url.password() {
            let user = if url.username().is_empty() { "default" } else { url.username() };
            write!(asked, "AUTH {user} {password}\r\n").unwrap();
        }
        asked.extend_from_slice(b"PING\r\nQUIT\r\n");
        stream.write_all(&asked).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("+PONG"), "that is not a Redis that lets us in: it answered {answer:?}");
    }
}
