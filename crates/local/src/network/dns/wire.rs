//! Queries and answers as bytes (RFC 1035, RFC 6891).

use std::net::Ipv4Addr;

const HEADER: usize = 12;
/// Without a word about it, an answer by UDP has at most so many bytes.
const PLAIN_LIMIT: usize = 512;
/// What passes nearly everywhere without being cut into fragments.
const EXTENDED_LIMIT: u16 = 1232;
/// CoreDNS says so, too: pods come and go.
const SECONDS_TO_LIVE: u32 = 5;

const RESPONSE: u16 = 1 << 15;
const OPERATION: u16 = 0xf << 11;
const AUTHORITATIVE: u16 = 1 << 10;
const TRUNCATED: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;

pub(super) const A: u16 = 1;
const SOA: u16 = 6;
pub(super) const SRV: u16 = 33;
const OPT: u16 = 41;
const INTERNET: u16 = 1;
/// Back to the name of the question, right behind the header.
const NAME_OF_QUESTION: u16 = 0xc00c;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// A query that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) id: u16,
    flags: u16,
    /// In lower case.
    pub(super) name: Vec<String>,
    pub(super) kind: u16,
    question: Vec<u8>,
    extension: Option<Extension>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extension {
    limit: u16,
    flags: u16,
}

/// A message that is no query; a code if it deserves an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) id: u16,
    pub(super) code: Option<Code>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    Address(Ipv4Addr),
    Service {
        weight: u16,
        port: u16,
        target: String,
    },
}

impl Query {
    pub(super) fn read(bytes: &[u8]) -> Result<Query, Bad> {
        let id = u16_at(bytes, 0).unwrap_or_default();
        let bad = |code| Bad { id, code };
        let flags = u16_at(bytes, 2).ok_or(bad(None))?;
        if flags & RESPONSE != 0 || bytes.len() < HEADER {
            return Err(bad(None));
        }
        if flags & OPERATION != 0 {
            return Err(bad(Some(Code::NotImplemented)));
        }
        let malformed = bad(Some(Code::FormatError));
        let count = |at| u16_at(bytes, at).ok_or(malformed);
        let (questions, answers, authorities) = (count(4)?, count(6)?, count(8)?);
        if (questions, answers, authorities) != (1, 0, 0) {
            return Err(malformed);
        }
        let (name, end) = read_name(bytes, HEADER).ok_or(malformed)?;
        let kind = u16_at(bytes, end).ok_or(malformed)?;
        let class = u16_at(bytes, end + 2).ok_or(malformed)?;
        if class != INTERNET {
            return Err(bad(Some(Code::Refused)));
        }
        let end = end + 4;
        let extension = match count(10)? {
            0 => None,
            _ => read_extension(&bytes[end..]),
        };
        Ok(Query {
            id,
            flags,
            name,
            kind,
            question: bytes[HEADER..end].to_vec(),
            extension,
        })
    }

    /// How long an answer by UDP may be.
    pub(super) fn limit(&self) -> usize {
        let limit = self.extension.map_or(0, |one| one.limit);
        usize::from(limit.min(EXTENDED_LIMIT)).max(PLAIN_LIMIT)
    }

    /// The same question, asked by us.
    pub(super) fn onward(&self, id: u16) -> Vec<u8> {
        let mut bytes = header(id, self.flags & RECURSION_DESIRED, [1, 0, 0, self.extras()]);
        bytes.extend(&self.question);
        if let Some(extension) = self.extension {
            write_extension(&mut bytes, extension.flags);
        }
        bytes
    }

    /// The answer of another server to `onward(id)`, for who asked here; nothing if it is not that.
    pub(super) fn relay(&self, id: u16, mut answer: Vec<u8>) -> Option<Vec<u8>> {
        let flags = u16_at(&answer, 2)?;
        let question = answer.get(HEADER..HEADER + self.question.len())?;
        let same = question.eq_ignore_ascii_case(&self.question);
        let is_answer = u16_at(&answer, 0) == Some(id) && flags & RESPONSE != 0 && same;
        if !is_answer || u16_at(&answer, 4) != Some(1) {
            return None;
        }
        answer[..2].copy_from_slice(&self.id.to_be_bytes());
        Some(answer)
    }

    /// An answer of our own. `zone` is the one that has, or would have, the name.
    pub(super) fn answer(&self, code: Code, data: &[Data], zone: Option<&str>) -> Vec<u8> {
        let count = u16::try_from(data.len()).unwrap_or(u16::MAX);
        let authority = zone.filter(|_| data.is_empty());
        let counts = [1, count, u16::from(authority.is_some()), self.extras()];
        let own = match zone {
            Some(_) => AUTHORITATIVE,
            None => 0,
        };
        let mut bytes = header(self.id, self.answer_flags(code) | own, counts);
        bytes.extend(&self.question);
        for one in data {
            bytes.extend(NAME_OF_QUESTION.to_be_bytes());
            write_data(&mut bytes, one);
        }
        if let Some(zone) = authority {
            write_authority(&mut bytes, zone);
        }
        if self.extension.is_some() {
            write_extension(&mut bytes, 0);
        }
        bytes
    }

    /// In place of an answer that is too long for UDP: to be asked again by TCP.
    pub(super) fn truncated(&self) -> Vec<u8> {
        let flags = self.answer_flags(Code::NoError) | TRUNCATED;
        let mut bytes = header(self.id, flags, [1, 0, 0, 0]);
        bytes.extend(&self.question);
        bytes
    }

    fn answer_flags(&self, code: Code) -> u16 {
        RESPONSE | (self.flags & RECURSION_DESIRED) | RECURSION_AVAILABLE | code as u16
    }

    fn extras(&self) -> u16 {
        u16::from(self.extension.is_some())
    }
}

impl Bad {
    pub(super) fn answer(self) -> Option<Vec<u8>> {
        let code = self.code?;
        Some(header(self.id, RESPONSE | code as u16, [0; 4]))
    }
}

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PLAIN_LIMIT);
    for number in [id, flags].into_iter().chain(counts) {
        bytes.extend(number.to_be_bytes());
    }
    bytes
}

/// A name that is written out, and where it ends. In a question there is nothing yet to refer back to.
fn read_name(bytes: &[u8], start: usize) -> Option<(Vec<String>, usize)> {
    let mut labels = Vec::new();
    let mut at = start;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        match length {
            0 if at - start <= 255 => return Some((labels, at)),
            1..=63 => {}
            _ => return None,
        }
        let label = bytes.get(at..at + length)?.to_ascii_lowercase();
        labels.push(String::from_utf8_lossy(&label).into_owned());
        at += length;
    }
}

fn write_name(bytes: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        let label = &label.as_bytes()[..label.len().min(63)];
        bytes.push(u8::try_from(label.len()).unwrap_or(63));
        bytes.extend(label);
    }
    bytes.push(0);
}

fn read_extension(bytes: &[u8]) -> Option<Extension> {
    let is_one = bytes.first() == Some(&0) && u16_at(bytes, 1) == Some(OPT);
    is_one.then_some(Extension {
        limit: u16_at(bytes, 3)?,
        flags: u16_at(bytes, 7)?,
    })
}

fn write_extension(bytes: &mut Vec<u8>, flags: u16) {
    bytes.push(0);
    let (version, length) = (0, 0);
    for number in [OPT, EXTENDED_LIMIT, version, flags, length] {
        bytes.extend(number.to_be_bytes());
    }
}

fn write_data(bytes: &mut Vec<u8>, data: &Data) {
    match data {
        Data::Address(address) => write_record(bytes, A, &address.octets()),
        Data::Service {
            weight,
            port,
            target,
        } => {
            let mut rest = Vec::new();
            for number in [0, *weight, *port] {
                rest.extend(number.to_be_bytes());
            }
            write_name(&mut rest, target);
            write_record(bytes, SRV, &rest);
        }
    }
}

/// How long it may be remembered that something does not exist.
fn write_authority(bytes: &mut Vec<u8>, zone: &str) {
    write_name(bytes, zone);
    let mut rest = Vec::new();
    write_name(&mut rest, &format!("ns.dns.{zone}"));
    write_name(&mut rest, &format!("hostmaster.{zone}"));
    let (serial, refresh, retry, expire) = (1_u32, 7200_u32, 1800_u32, 86400_u32);
    for number in [serial, refresh, retry, expire, SECONDS_TO_LIVE] {
        rest.extend(number.to_be_bytes());
    }
    write_record(bytes, SOA, &rest);
}

/// Behind the name.
fn write_record(bytes: &mut Vec<u8>, kind: u16, data: &[u8]) {
    bytes.extend(kind.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    bytes.extend(SECONDS_TO_LIVE.to_be_bytes());
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{A, Bad, Code, Data, Query, header, write_extension, write_name};

    fn ask(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = header(7, 0x100, [1, 0, 0, 0]);
        write_name(&mut bytes, name);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes
    }

    #[test]
    fn a_question_is_read_in_lower_case_and_echoed_as_it_was() {
        let bytes = ask("Web.Default.SVC", A);
        let query = Query::read(&bytes).unwrap();
        assert_eq!(query.name, ["web", "default", "svc"]);
        let data = [Data::Address([10, 88, 0, 2].into())];
        let answer = query.answer(Code::NoError, &data, Some("cluster.local"));
        assert_eq!(answer[HEADER_END..bytes.len()], bytes[HEADER_END..]);
        assert_eq!(answer[2..4], [0x85, 0x80]);
        let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 88, 0, 2];
        assert_eq!(answer[bytes.len()..], record);
    }

    const HEADER_END: usize = 12;

    #[test]
    fn what_is_no_query_gets_no_answer_or_an_error() {
        let response = {
            let mut bytes = ask("a", A);
            bytes[2] |= 0x80;
            bytes
        };
        let update = {
            let mut bytes = ask("a", A);
            bytes[2] |= 5 << 3;
            bytes
        };
        let long = {
            let mut bytes = header(7, 0, [1, 0, 0, 0]);
            bytes.push(64);
            bytes.extend([b'a'; 64]);
            bytes.extend([0, 0, 1, 0, 1]);
            bytes
        };
        let looped = [&header(7, 0, [1, 0, 0, 0])[..], &[0xc0, 12, 0, 1, 0, 1]].concat();
        for (bytes, code) in [
            (&response[..], None),
            (&[7][..], None),
            (&update[..], Some(Code::NotImplemented)),
            (&looped[..], Some(Code::FormatError)),
            (&long[..], Some(Code::FormatError)),
        ] {
            assert_eq!(Query::read(bytes).unwrap_err().code, code);
        }
        assert_eq!(Bad { id: 7, code: None }.answer(), None);
    }

    #[test]
    fn an_answer_to_another_question_is_not_relayed() {
        let query = Query::read(&ask("a.example", A)).unwrap();
        let mut other = Query::read(&ask("b.example", A)).unwrap();
        other.id = 9;
        let forged = other.answer(Code::NoError, &[], None);
        assert_eq!(query.relay(9, forged), None);
        other.question = query.question.clone();
        let answer = other.answer(Code::NoError, &[], None);
        assert_eq!(query.relay(8, answer.clone()), None);
        let relayed = query.relay(9, answer).unwrap();
        assert_eq!(relayed[..2], [0, 7]);
    }

    #[test]
    fn only_the_question_goes_on() {
        let mut bytes = ask("a.example", A);
        bytes[11] = 1;
        write_extension(&mut bytes, 0x8000);
        let length = bytes.len();
        bytes.extend(b"hidden in the tail");
        let query = Query::read(&bytes).unwrap();
        let onward = query.onward(3);
        assert_eq!(onward[2..], bytes[2..length]);
        assert_eq!(query.limit(), 1232);
    }

    proptest! {
        #[test]
        fn any_packet_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(query) = Query::read(&bytes) {
                let onward = query.onward(query.id);
                let again = Query::read(&onward).unwrap();
                prop_assert_eq!(again.name, query.name.clone());
                prop_assert!(query.relay(0, bytes).is_none());
            }
        }

        #[test]
        fn a_query_with_flaws_is_read_without_harm(
            at in 0_usize..60,
            byte in any::<u8>(),
            cut in 0_usize..60,
        ) {
            let mut bytes = ask("some-service.some-namespace.svc.cluster.local", A);
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Ok(query) = Query::read(&bytes) {
                let answer = query.answer(Code::NoSuchName, &[], Some("cluster.local"));
                prop_assert!(answer.len() < 512);
            }
        }
    }
}
