//! Amounts given as a count or as a percentage, and the budgets of a rollout that follow from them.
//!
//! Admission reads fields with [`Field::read`]; whatever it refuses must never reach a rollout as a silent zero.

use std::fmt;

use serde_json::Value;

/// A field that takes a count or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// How many members stay at the old revision.
    Partition,
    MaxUnavailable,
    MaxSurge,
    /// How many members may be on their way up while scaling.
    ScaleMaxUnavailable,
    /// How many members must stay claimable.
    Floor,
}

/// A count, or a share of something that is known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(u32),
    Percent(Percent),
}

/// A percentage with up to nine decimal places, kept exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent {
    billionths: u64,
}

/// A value that its field does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: invalid value {value}: {problem}; accepted are {accepted}")]
pub struct InvalidAmount {
    pub field: Field,
    pub value: String,
    problem: &'static str,
    accepted: &'static str,
}

/// A strategy that could never take a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("maxUnavailable and maxSurge must not both come to 0")]
pub struct NoBudget;

const PLACES: u32 = 9;
const ONE_PERCENT: u64 = 10_u64.pow(PLACES);

impl Field {
    pub fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::MaxUnavailable => "maxUnavailable",
            Self::MaxSurge => "maxSurge",
            Self::ScaleMaxUnavailable => "scaleStrategy.maxUnavailable",
            Self::Floor => "floor",
        }
    }

    fn takes_fractions(self) -> bool {
        self == Self::Partition
    }

    fn takes_more_than_all(self) -> bool {
        self == Self::MaxSurge
    }

    fn accepted(self) -> &'static str {
        match (self.takes_fractions(), self.takes_more_than_all()) {
            (true, _) => "a whole number such as 3 or a percentage from 0% to 100% such as 12.5%",
            (_, true) => "a whole number such as 3 or a whole percentage such as 25%",
            _ => "a whole number such as 3 or a whole percentage from 0% to 100% such as 25%",
        }
    }

    /// Reads the field from an object; nothing if it is not set.
    pub fn read(self, value: Option<&Value>) -> Result<Option<Amount>, InvalidAmount> {
        let read = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => self.count(number),
            Some(Value::String(text)) => self.percent(text).map(Amount::Percent),
            Some(_) => Err("neither a number nor a percentage"),
        };
        read.map(Some).map_err(|problem| InvalidAmount {
            field: self,
            value: value.map(ToString::to_string).unwrap_or_default(),
            problem,
            accepted: self.accepted(),
        })
    }

    fn count(self, number: &serde_json::Number) -> Result<Amount, &'static str> {
        let count = number.as_i64().ok_or("not a whole number")?;
        let count = i32::try_from(count).map_err(|_| "out of range")?;
        let count = u32::try_from(count).map_err(|_| "negative")?;
        Ok(Amount::Count(count))
    }

    fn percent(self, text: &str) -> Result<Percent, &'static str> {
        let digits = text.strip_suffix('%').ok_or("a text without %")?;
        let percent = Percent::read(digits).ok_or("not a percentage")?;
        if digits.contains('.') && !self.takes_fractions() {
            return Err("a fraction of a percent");
        }
        match percent.billionths.cmp(&Percent::ALL.billionths) {
            std::cmp::Ordering::Greater if !self.takes_more_than_all() => Err("more than 100%"),
            // only `100%` itself means all, so a second spelling would be a trap
            std::cmp::Ordering::Equal if digits != "100" => Err("100% written in another way"),
            _ => Ok(percent),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Percent {
    const ALL: Self = Self::whole(100);

    pub const fn whole(percent: u32) -> Self {
        Self {
            billionths: percent as u64 * ONE_PERCENT,
        }
    }

    fn read(digits: &str) -> Option<Self> {
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let places = u32::try_from(fraction.len()).ok()?;
        if !is_number(whole) || !is_number(fraction) || places > PLACES {
            return None;
        }
        let whole = whole.parse::<u32>().ok()?;
        let fraction = fraction.parse::<u64>().ok()? * 10_u64.pow(PLACES - places);
        let billionths = Self::whole(whole).billionths + fraction;
        Some(Self { billionths })
    }
}

impl Amount {
    pub const fn percent(percent: u32) -> Self {
        Self::Percent(Percent::whole(percent))
    }

    /// Of `total`, a part of a member counted as a whole one.
    pub fn rounded_up(self, total: u32) -> u32 {
        self.of(total, u128::div_ceil)
    }

    /// Of `total`, a part of a member not counted.
    pub fn rounded_down(self, total: u32) -> u32 {
        self.of(total, |amount, unit| amount / unit)
    }

    fn of(self, total: u32, divide: impl Fn(u128, u128) -> u128) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let parts = u128::from(percent.billionths) * u128::from(total);
                let share = divide(parts, 100 * u128::from(ONE_PERCENT));
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        }
    }
}

/// How many of `replicas` stay at the old revision. A percentage below 100 leaves at least one to update, unless there is
/// only one.
pub fn partition(amount: Option<Amount>, replicas: u32) -> u32 {
    let Some(amount) = amount else { return 0 };
    let kept = amount.rounded_up(replicas);
    match amount {
        Amount::Percent(percent) if percent != Percent::ALL && replicas > 1 && kept == replicas => {
            replicas - 1
        }
        _ => kept.min(replicas),
    }
}

/// How many members may be on their way up at once; nothing if there is no limit.
pub fn scale_limit(amount: Option<Amount>, replicas: u32) -> Option<u32> {
    amount.map(|amount| amount.rounded_up(replicas))
}

/// What an object says about the pace of its rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    pub max_unavailable: Option<Amount>,
    pub max_surge: Option<Amount>,
    pub paused: bool,
}

/// What holds where an object says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub max_unavailable: Amount,
    pub max_surge: Amount,
}

impl Defaults {
    pub const SANDBOX_SET: Self = Self {
        max_unavailable: Amount::percent(20),
        max_surge: Amount::Count(0),
    };
    pub const SANDBOX_WARM_POOL: Self = Self {
        max_unavailable: Amount::percent(20),
        max_surge: Amount::percent(20),
    };
}

/// How far a rollout may take a pool from its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub unavailable: u32,
    pub surge: u32,
}

impl Pace {
    /// A percentage of unavailable members is rounded down only when a surge makes up for it; rounding down without one
    /// would let small pools stand still.
    pub fn budget(&self, replicas: u32, defaults: &Defaults) -> Budget {
        let unavailable = self.max_unavailable.unwrap_or(defaults.max_unavailable);
        let surge = match self.paused {
            true => 0,
            false => self.surge(defaults).rounded_up(replicas),
        };
        let unavailable = match surge {
            0 => unavailable.rounded_up(replicas),
            _ => unavailable.rounded_down(replicas),
        };
        Budget { unavailable, surge }
    }

    /// Refuses a strategy under which a pool of this size could never roll.
    pub fn check(&self, replicas: u32, defaults: &Defaults) -> Result<(), NoBudget> {
        let unavailable = self.max_unavailable.unwrap_or(defaults.max_unavailable);
        let amounts = [unavailable, self.surge(defaults)];
        let stuck = amounts.iter().all(|it| it.rounded_up(replicas) == 0);
        match stuck && replicas > 0 {
            true => Err(NoBudget),
            false => Ok(()),
        }
    }

    fn surge(&self, defaults: &Defaults) -> Amount {
        self.max_surge.unwrap_or(defaults.max_surge)
    }
}

/// How many sandboxes an operation may have in work at once: at least one, and one if it does not say.
pub fn operation_limit(amount: Option<Amount>, total: u32) -> u32 {
    amount.map_or(1, |amount| amount.rounded_up(total).max(1))
}

/// How many sandboxes an operation may start now. Failed ones keep their slot, unless the operation has a limit of failures
/// of its own.
pub fn operation_starts(limit: u32, updating: u32, failed: u32, has_max_failed: bool) -> u32 {
    let kept = if has_max_failed { 0 } else { failed };
    limit.saturating_sub(updating.saturating_add(kept))
}

#[cfg(test)]
mod tests;
