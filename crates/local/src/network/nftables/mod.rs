//! nftables by netlink: operations on the table of an instance, as one transaction.

mod expression;

use std::net::Ipv4Addr;

use super::netlink::{Message, Mode, NetlinkError, Protocol, Socket, attributes, text};
use super::rules::{Hook, Operation, Rule, Source};

const SUBSYSTEM: u8 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const UNSPECIFIED: u8 = 0;
/// IPv4 and IPv6 in one table.
const INET: u8 = 1;
const FIXED: usize = 4;

const NEW_TABLE: u8 = 0;
const GET_TABLE: u8 = 1;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const DELETE_CHAIN: u8 = 5;
const NEW_RULE: u8 = 6;
const DELETE_RULE: u8 = 8;
const NEW_SET: u8 = 9;
const DELETE_SET: u8 = 11;
const NEW_ELEMENTS: u8 = 12;
const DELETE_ELEMENTS: u8 = 14;

/// Messages about what is in a table begin with the table's name.
const TABLE: u16 = 1;

const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const ACCEPT: u32 = 1;

const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;

const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DATA_TYPE: u16 = 6;
const SET_ID: u16 = 10;
const IS_MAP: u32 = 0x8;
const VERDICT: u32 = 0xffff_ff00;

/// How `nft` numbers the types of keys; the kernel only hands them back.
const TYPE_ADDRESS: u32 = 7;
const TYPE_LINK_AND_ADDRESS: u32 = 41 << 6 | TYPE_ADDRESS;
const ADDRESS_LENGTH: u32 = 4;
const LINK_LENGTH: usize = 16;

const ELEMENTS_SET: u16 = 2;
const ELEMENTS: u16 = 3;
const ITEM: u16 = 1;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
/// An element is at most 100 bytes long, a list of them at most 65,535.
const ELEMENTS_AT_ONCE: usize = 500;

const SOURCES: &str = "sources";

/// Does all operations or, if one fails, nothing.
pub(super) fn apply(table: &str, operations: &[Operation]) -> Result<(), NetlinkError> {
    let mut writer = Writer {
        table,
        messages: vec![batch(BATCH_BEGIN)],
    };
    for operation in operations {
        writer.operation(operation);
    }
    if writer.messages.len() == 1 {
        return Ok(());
    }
    writer.commit()
}

/// Takes a table away, if it is there, with all that is in it.
pub(super) fn remove(table: &str) -> Result<(), NetlinkError> {
    let mut writer = Writer {
        table,
        messages: vec![batch(BATCH_BEGIN)],
    };
    writer.remove_table();
    writer.commit()
}

/// The names of all tables of this namespace that are for IPv4 and IPv6.
pub(super) fn tables() -> Result<Vec<String>, NetlinkError> {
    let mut socket = Socket::open(Protocol::Netfilter)?;
    let request = Message::new(kind(GET_TABLE), Mode::Dump, &fixed(INET));
    socket.dump(&request, |body| {
        let mut named = attributes(body.get(FIXED..)?).filter(|(kind, _)| *kind == TABLE);
        named.next().map(|(_, name)| text(name))
    })
}

fn kind(message: u8) -> u16 {
    u16::from_be_bytes([SUBSYSTEM, message])
}

fn fixed(family: u8) -> [u8; FIXED] {
    [family, 0, 0, 0]
}

fn batch(kind: u16) -> Message {
    Message::new(kind, Mode::Change, &[UNSPECIFIED, 0, 0, SUBSYSTEM])
}

struct Writer<'a> {
    table: &'a str,
    messages: Vec<Message>,
}

impl Writer<'_> {
    fn commit(mut self) -> Result<(), NetlinkError> {
        self.messages.push(batch(BATCH_END));
        Socket::open(Protocol::Netfilter)?.transact(self.messages)
    }

    fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::NewTable => {
                self.remove_table();
                self.push(NEW_TABLE, Mode::Create, |_| {});
                self.new_set(SOURCES, TYPE_LINK_AND_ADDRESS, |set| {
                    let length = LINK_LENGTH + 4;
                    set.add_be32(SET_KEY_LENGTH, u32::try_from(length).unwrap_or(u32::MAX));
                });
            }
            Operation::NewSet(name) => self.new_set(name, TYPE_ADDRESS, |set| {
                set.add_be32(SET_KEY_LENGTH, ADDRESS_LENGTH);
            }),
            Operation::NewMap(name) => self.new_set(name, TYPE_ADDRESS, |set| {
                set.add_be32(SET_FLAGS, IS_MAP);
                set.add_be32(SET_KEY_LENGTH, ADDRESS_LENGTH);
                set.add_be32(SET_DATA_TYPE, VERDICT);
            }),
            Operation::NewChain(name, hook) => self.new_chain(name, *hook),
            Operation::AddSources(sources) => {
                self.elements(NEW_ELEMENTS, Mode::Ensure, SOURCES, sources, source);
            }
            Operation::RemoveSources(sources) => {
                self.elements(DELETE_ELEMENTS, Mode::Change, SOURCES, sources, source);
            }
            Operation::AddMembers(set, members) => {
                self.elements(NEW_ELEMENTS, Mode::Ensure, set, members, address);
            }
            Operation::RemoveMembers(set, members) | Operation::RemoveEntries(set, members) => {
                self.elements(DELETE_ELEMENTS, Mode::Change, set, members, address);
            }
            Operation::AddEntries(map, entries) => {
                self.elements(NEW_ELEMENTS, Mode::Ensure, map, entries, entry);
            }
            Operation::AddRule(chain, rule) => self.add_rule(chain, rule),
            Operation::Empty(chain) => self.push(DELETE_RULE, Mode::Change, |message| {
                message.add_text(RULE_CHAIN, chain);
            }),
            Operation::RemoveChain(chain) => self.push(DELETE_CHAIN, Mode::Change, |message| {
                message.add_text(CHAIN_NAME, chain);
            }),
            Operation::RemoveSet(set) => self.push(DELETE_SET, Mode::Change, |message| {
                message.add_text(SET_NAME, set);
            }),
        }
    }

    /// A table that is not there cannot be taken away, so it is made first.
    fn remove_table(&mut self) {
        self.push(NEW_TABLE, Mode::Ensure, |_| {});
        self.push(DELETE_TABLE, Mode::Change, |_| {});
    }

    fn new_set(&mut self, name: &str, key: u32, fill: impl FnOnce(&mut Message)) {
        // any number will do that no other set of the batch has
        let id = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        self.push(NEW_SET, Mode::Create, |message| {
            message.add_text(SET_NAME, name);
            message.add_be32(SET_KEY_TYPE, key);
            message.add_be32(SET_ID, id);
            fill(message);
        });
    }

    fn new_chain(&mut self, name: &str, hook: Option<Hook>) {
        self.push(NEW_CHAIN, Mode::Create, |message| {
            message.add_text(CHAIN_NAME, name);
            let Some(hook) = hook else { return };
            let (number, priority, kind) = placed(hook);
            message.nest(CHAIN_HOOK, |hook| {
                hook.add_be32(HOOK_NUMBER, number);
                hook.add_be32(HOOK_PRIORITY, priority.cast_unsigned());
            });
            message.add_be32(CHAIN_POLICY, ACCEPT);
            message.add_text(CHAIN_TYPE, kind);
        });
    }

    fn add_rule(&mut self, chain: &str, rule: &Rule) {
        self.push(NEW_RULE, Mode::Append, |message| {
            message.add_text(RULE_CHAIN, chain);
            message.nest(RULE_EXPRESSIONS, |list| expression::write(rule, list));
        });
    }

    fn elements<T>(
        &mut self,
        kind: u8,
        mode: Mode,
        set: &str,
        items: &[T],
        write: fn(&T, &mut Message),
    ) {
        for some in items.chunks(ELEMENTS_AT_ONCE) {
            self.push(kind, mode, |message| {
                message.add_text(ELEMENTS_SET, set);
                message.nest(ELEMENTS, |list| {
                    for item in some {
                        list.nest(ITEM, |element| write(item, element));
                    }
                });
            });
        }
    }

    fn push(&mut self, message: u8, mode: Mode, fill: impl FnOnce(&mut Message)) {
        let mut message = Message::new(kind(message), mode, &fixed(INET));
        message.add_text(TABLE, self.table);
        fill(&mut message);
        self.messages.push(message);
    }
}

/// Number, priority and type of a hook.
fn placed(hook: Hook) -> (u32, i32, &'static str) {
    match hook {
        Hook::Prerouting => (0, -300, "filter"),
        Hook::Input => (1, 0, "filter"),
        Hook::Forward => (2, 0, "filter"),
        Hook::Postrouting => (4, 100, "nat"),
    }
}

fn source(source: &Source, element: &mut Message) {
    let mut key = [0; LINK_LENGTH + 4];
    for (to, from) in key[..LINK_LENGTH].iter_mut().zip(source.link.bytes()) {
        *to = from;
    }
    key[LINK_LENGTH..].copy_from_slice(&source.address.octets());
    element.nest(ELEMENT_KEY, |data| expression::value(data, &key));
}

fn address(address: &Ipv4Addr, element: &mut Message) {
    element.nest(ELEMENT_KEY, |key| {
        expression::value(key, &address.octets());
    });
}

fn entry((of, chain): &(Ipv4Addr, String), element: &mut Message) {
    address(of, element);
    element.nest(ELEMENT_DATA, |data| expression::goto(data, chain));
}
