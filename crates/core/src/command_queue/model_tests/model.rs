//! The queue once more, as plainly as possible: one list of commands that is searched from the start for everything.
//! Nothing here is shared with the machine but its types.

use qd_wire::CodedError;

use qd_wire::command_table::Lane;

use super::super::{
    AgentActivity, AgentAnswer, AgentWork, QueueEffect, QueueInput, QueueLimits, QueueRefusal, QueuedCommand,
    Undelivered,
};
use super::places::{Given, Item, KEPT, Place, in_lane, is_kept};
use crate::ledger::Token;

pub(super) struct Model {
    limits: QueueLimits,
    items: Vec<Item>,
    orders: i64,
    given: Given,
    kept_refused: bool,
    abort_after: Option<u64>,
    agent: bool,
    facts: AgentActivity,
    out: Vec<QueueEffect>,
}

impl Model {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Model {
            limits,
            items: Vec::new(),
            orders: 0,
            given: Given::Nobody,
            kept_refused: false,
            abort_after: None,
            agent: false,
            facts: AgentActivity::default(),
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, now: i64, input: &QueueInput) -> Vec<QueueEffect> {
        match input.clone() {
            QueueInput::Hold { command, is_repeat } => {
                self.add(command, Place::Held { repeats: is_repeat, since: now });
            }
            QueueInput::Release { token } => {
                if let Some(item) = self.remove(token, |place| matches!(place, Place::Held { .. })) {
                    self.arrive(item.command);
                }
            }
            QueueInput::Enqueue(command) => self.arrive(command),
            QueueInput::Park { token } => {
                let max = self.limits.parked_max;
                if self.leave_hand(token, Place::Parked, max, QueueRefusal::TooManyParked { max }) {
                    self.out.push(QueueEffect::StartAgent);
                }
            }
            QueueInput::EnqueuePrompt { token, may_interrupt } => {
                let follows = !may_interrupt && self.has_kept();
                let place = Place::Prompt { interrupts: may_interrupt || follows, follows };
                let max = self.limits.prompts_max;
                self.leave_hand(token, place, max, QueueRefusal::TooManyPrompts { max });
            }
            QueueInput::EditQueue { token } => {
                // One that need not wait needs no room.
                let room = if self.is_edited() { self.limits.edits_max } else { usize::MAX };
                let max = self.limits.edits_max;
                self.leave_hand(token, Place::Edit, room, QueueRefusal::TooManyEdits { max });
            }
            QueueInput::PromptWritten { token, is_command } => self.prompt_written(now, token, is_command),
            QueueInput::DeliveryWritten { token } => self.kept_written(now, token),
            QueueInput::DeliveryNotWritten { is_refused } => {
                self.given = Given::Nobody;
                self.kept_refused = is_refused;
            }
            QueueInput::Running { token, work } => self.runs(token, work),
            QueueInput::Answered { token, answer } => self.answered(token, answer),
            QueueInput::Finished { token } => {
                let is_over = |place: Place| {
                    matches!(place, Place::Held { .. } | Place::InHand | Place::WithAgent(_) | Place::Late)
                };
                self.remove(token, is_over);
                self.no_more(token);
            }
            QueueInput::Cancel { token } => self.cancel(token),
            QueueInput::Activity(facts) => self.look_at_agent(facts),
            QueueInput::AgentReady => self.agent_ready(),
            QueueInput::AgentGone => self.agent_gone(),
            QueueInput::RefuseWaiting { error, with_lanes } => self.refuse_waiting(&error, with_lanes),
            QueueInput::Tick => self.time_passes(now),
            QueueInput::Close => self.close(),
        }
        self.go();
        std::mem::take(&mut self.out)
    }

    fn look_at_agent(&mut self, facts: AgentActivity) {
        self.facts = facts;
        if self.abort_after.is_some_and(|turns| facts.turns > turns) {
            self.abort_after = None;
            if facts.is_working {
                self.out.push(QueueEffect::AbortTurn);
            }
        }
        if let Given::Written { turns, accepted: true, .. } = self.given
            && facts.turns > turns
        {
            self.given = Given::Nobody;
        }
    }

    fn agent_gone(&mut self) {
        self.agent = false;
        self.given = Given::Nobody;
        self.abort_after = None;
        self.items.retain(|item| !KEPT(item));
        for item in &mut self.items {
            if item.place == Place::WithAgent(AgentWork::Abort) {
                item.place = Place::WithAgent(AgentWork::Request);
            }
        }
    }

    fn time_passes(&mut self, now: i64) {
        let wait = self.limits.dependency_wait_ms;
        let is_over =
            |item: &Item| matches!(item.place, Place::Held { repeats: false, since } if since + wait <= now);
        for token in self.sorted(|item| is_over(item)) {
            self.remove(token, |_| true);
            self.out.push(QueueEffect::FailDependencies { token });
        }
        if let Given::Written { at, .. } = self.given
            && at + self.limits.prompt_wait_ms <= now
        {
            self.given = Given::Nobody;
        }
    }

    fn prompt_written(&mut self, now: i64, token: Token, is_command: bool) {
        if let Some(at) = self.find(token, |place| place == Place::InHand) {
            let work = AgentWork::Prompt { turns_before: self.facts.turns };
            self.items[at].place = Place::WithAgent(work);
            self.items[at].has_turn &= !is_command;
            self.given = Given::Written { token, at: now, turns: self.facts.turns, accepted: false };
        }
    }

    fn kept_written(&mut self, now: i64, token: Token) {
        let work = AgentWork::Delivery { turns_before: self.facts.turns };
        let command = QueuedCommand { token, lane: Lane::Control, when_idle: false };
        self.add(command, Place::WithAgent(work));
        self.given = Given::Written { token, at: now, turns: self.facts.turns, accepted: false };
    }

    fn runs(&mut self, token: Token, work: AgentWork) {
        if let Some(at) = self.find(token, |place| place == Place::InHand) {
            self.items[at].place = Place::WithAgent(work);
            let is_written = matches!(self.given, Given::Written { .. });
            if work == AgentWork::Abort && is_written && !self.facts.is_working {
                self.abort_after = Some(self.facts.turns);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<i64> {
        let held = self.items.iter().filter_map(|item| match item.place {
            Place::Held { repeats: false, since } => Some(since + self.limits.dependency_wait_ms),
            _ => None,
        });
        let written = match self.given {
            Given::Written { at, .. } => Some(at + self.limits.prompt_wait_ms),
            _ => None,
        };
        held.chain(written).min()
    }

    pub(super) fn work_of(&self, token: Token) -> Option<AgentWork> {
        let item = self.items.iter().find(|item| item.command.token == token)?;
        match item.place {
            Place::WithAgent(work) | Place::GivenUp(work) => Some(work),
            _ => None,
        }
    }

    pub(super) fn unanswered(&self) -> usize {
        let is_asked = |item: &&Item| matches!(item.place, Place::WithAgent(_) | Place::GivenUp(_));
        self.items.iter().filter(is_asked).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_given_up = |item: &Item| matches!(item.place, Place::GivenUp(_));
        self.items.iter().all(is_given_up) && self.given == Given::Nobody && !self.is_edited()
    }

    fn add(&mut self, command: QueuedCommand, place: Place) {
        self.orders += 1;
        let order = self.orders;
        self.items.push(Item { command, place, order, has_turn: false, is_editing: false });
    }

    fn find(&self, token: Token, is_place: impl Fn(Place) -> bool) -> Option<usize> {
        self.items.iter().position(|item| item.command.token == token && is_place(item.place))
    }

    fn remove(&mut self, token: Token, is_place: impl Fn(Place) -> bool) -> Option<Item> {
        self.find(token, is_place).map(|at| self.items.remove(at))
    }

    /// Those of some kind, in the order in which they came to where they are.
    fn tokens(&self, is_one: impl Fn(&Item) -> bool) -> Vec<Token> {
        let mut found: Vec<&Item> = self.items.iter().filter(|item| is_one(item)).collect();
        found.sort_by_key(|item| item.order);
        found.into_iter().map(|item| item.command.token).collect()
    }

    /// The first of them.
    fn first(&self, is_one: impl Fn(&Item) -> bool) -> Option<Token> {
        let found = self.items.iter().filter(|item| is_one(item));
        found.min_by_key(|item| item.order).map(|item| item.command.token)
    }

    fn sorted(&self, is_one: impl Fn(&Item) -> bool) -> Vec<Token> {
        let mut tokens = self.tokens(is_one);
        tokens.sort_unstable();
        tokens
    }

    fn move_to(&mut self, token: Token, place: Place) {
        self.orders += 1;
        let order = self.orders;
        for item in self.items.iter_mut().filter(|item| item.command.token == token) {
            (item.place, item.order) = (place, order);
        }
    }

    fn arrive(&mut self, command: QueuedCommand) {
        let waiting = self.items.iter().filter(|item| in_lane(item, command.lane)).count();
        let refusal = match command.lane {
            Lane::Session if waiting >= self.limits.lane_max => {
                QueueRefusal::LaneFull { max: self.limits.lane_max }
            }
            Lane::Shell if waiting >= self.limits.shell_lane_max => {
                QueueRefusal::ShellLaneFull { max: self.limits.shell_lane_max }
            }
            Lane::Session | Lane::Shell => return self.add(command, Place::InLane),
            Lane::Control | Lane::Read | Lane::Service => {
                self.add(command, Place::InHand);
                return self.out.push(QueueEffect::Execute { token: command.token });
            }
        };
        self.out.push(QueueEffect::Refuse { token: command.token, refusal });
    }

    /// A command in hand goes to another place, if there is room.
    fn leave_hand(&mut self, token: Token, place: Place, max: usize, full: QueueRefusal) -> bool {
        if self.find(token, |place| place == Place::InHand).is_none() {
            return false;
        }
        let same = |item: &&Item| std::mem::discriminant(&item.place) == std::mem::discriminant(&place);
        if self.items.iter().filter(same).count() >= max {
            self.remove(token, |_| true);
            self.no_more(token);
            self.out.push(QueueEffect::Refuse { token, refusal: full });
            return false;
        }
        self.move_to(token, place);
        true
    }

    fn answered(&mut self, token: Token, answer: AgentAnswer) {
        let Some(work) = self.work_of(token) else { return };
        let is_given_up = self.find(token, |place| matches!(place, Place::GivenUp(_))).is_some();
        let starts = answer == AgentAnswer::StartsTurn;
        match work {
            AgentWork::Prompt { .. } if !starts => self.abort_after = None,
            AgentWork::Delivery { .. } if answer == AgentAnswer::Refused => self.kept_refused = true,
            _ => {}
        }
        if let Given::Written { token: own, turns, accepted, .. } = &mut self.given
            && *own == token
        {
            *accepted = true;
            if !starts || self.facts.turns > *turns {
                self.given = Given::Nobody;
            }
        }
        let is_editing = self.items.iter().any(|item| item.command.token == token && item.is_editing);
        if is_given_up && is_editing {
            self.move_to(token, Place::Late);
        } else if is_given_up || is_kept(Place::WithAgent(work)) {
            self.remove(token, |_| true);
        } else {
            self.move_to(token, Place::InHand);
        }
    }

    /// A command is over.
    fn no_more(&mut self, token: Token) {
        if self.given == Given::ToWrite(token) {
            self.given = Given::Nobody;
        }
        for item in self.items.iter_mut().filter(|item| item.command.token == token) {
            (item.has_turn, item.is_editing) = (false, false);
        }
    }

    fn cancel(&mut self, token: Token) {
        let waits = |place: Place| {
            matches!(
                place,
                Place::Held { repeats: false, .. }
                    | Place::InLane
                    | Place::Parked
                    | Place::Prompt { .. }
                    | Place::Edit
            )
        };
        if self.remove(token, waits).is_some() {
            self.no_more(token);
            return self.out.push(QueueEffect::TimeOut { token });
        }
        let runs = |place: Place| matches!(place, Place::WithAgent(_)) && !is_kept(place);
        let Some(at) = self.find(token, runs) else { return };
        let Place::WithAgent(work) = self.items[at].place else { return };
        self.items[at].place = Place::GivenUp(work);
        self.items[at].has_turn = false;
        self.out.push(QueueEffect::GiveUp { token });
        let given_up = self.sorted(|item| matches!(item.place, Place::GivenUp(_)));
        if given_up.len() > self.limits.given_up_max {
            self.remove(given_up[0], |_| true);
            self.out.push(QueueEffect::Forget { token: given_up[0] });
        }
    }

    fn agent_ready(&mut self) {
        self.agent = true;
        self.kept_refused = false;
        let starts = self.sorted(|item| item.place == Place::WithAgent(AgentWork::Start));
        self.forget_starts();
        for token in starts {
            self.move_to(token, Place::InHand);
            self.out.push(QueueEffect::AnswerStart { token });
        }
        for token in self.tokens(|item| item.place == Place::Parked) {
            let Some(at) = self.find(token, |_| true) else { continue };
            let item = &mut self.items[at];
            if item.command.when_idle && item.has_turn && item.command.lane == Lane::Session {
                item.has_turn = false;
                item.place = Place::InLane;
                item.order = 0;
            } else {
                self.move_to(token, Place::InHand);
                self.out.push(QueueEffect::ExecuteParked { token });
            }
        }
    }

    fn forget_starts(&mut self) {
        for token in self.sorted(|item| item.place == Place::GivenUp(AgentWork::Start)) {
            self.remove(token, |_| true);
            self.out.push(QueueEffect::Forget { token });
        }
    }

    fn refuse_waiting(&mut self, error: &CodedError, with_lanes: bool) {
        let mut tokens = self.sorted(|item| item.place == Place::WithAgent(AgentWork::Start));
        self.forget_starts();
        tokens.extend(self.tokens(|item| item.place == Place::Parked));
        tokens.extend(self.tokens(|item| matches!(item.place, Place::Prompt { .. })));
        if with_lanes {
            tokens.extend(self.tokens(|item| in_lane(item, Lane::Session)));
            tokens.extend(self.tokens(|item| in_lane(item, Lane::Shell)));
        }
        for token in tokens {
            self.remove(token, |_| true);
            self.no_more(token);
            let refusal = QueueRefusal::NoAgent(error.clone());
            self.out.push(QueueEffect::Refuse { token, refusal });
        }
    }

    fn close(&mut self) {
        for token in self.sorted(|item| matches!(item.place, Place::WithAgent(_)) && !KEPT(item)) {
            self.out.push(QueueEffect::Lose { token });
        }
        let mut tokens = self.sorted(|item| matches!(item.place, Place::Held { .. }));
        tokens.extend(self.sorted(|item| item.place == Place::InHand));
        for place in [Place::Parked, Place::Edit] {
            tokens.extend(self.tokens(|item| item.place == place));
        }
        tokens.extend(self.tokens(|item| in_lane(item, Lane::Session)));
        tokens.extend(self.tokens(|item| in_lane(item, Lane::Shell)));
        tokens.extend(self.tokens(|item| matches!(item.place, Place::Prompt { .. })));
        for token in tokens {
            self.out.push(QueueEffect::Refuse { token, refusal: QueueRefusal::SessionEnded });
        }
        let out = std::mem::take(&mut self.out);
        *self = Model { out, ..Model::new(self.limits) };
    }

    fn is_edited(&self) -> bool {
        self.items.iter().any(|item| item.is_editing)
    }

    fn has_kept(&self) -> bool {
        self.agent && !self.kept_refused && self.facts.undelivered != Undelivered::Nothing
    }

    fn kept_goes_now(&self) -> bool {
        let has_prompt = self.items.iter().any(|item| matches!(item.place, Place::Prompt { .. }));
        let is_time = self.facts.undelivered == Undelivered::Now || has_prompt;
        self.has_kept() && is_time && !self.is_edited()
    }

    /// The first that can go on does, until nobody can.
    fn go(&mut self) {
        while self.edit_next()
            || self.write_next()
            || self.take_turn(Lane::Session)
            || self.take_turn(Lane::Shell)
        {}
    }

    fn edit_next(&mut self) -> bool {
        let waiting = self.first(|item| item.place == Place::Edit);
        let Some(token) = waiting.filter(|_| !self.is_edited()) else { return false };
        self.move_to(token, Place::InHand);
        self.items
            .iter_mut()
            .filter(|item| item.command.token == token)
            .for_each(|item| item.is_editing = true);
        self.out.push(QueueEffect::EditQueue { token });
        true
    }

    fn write_next(&mut self) -> bool {
        if !self.agent || self.given != Given::Nobody || self.is_edited() {
            return false;
        }
        if self.kept_goes_now() {
            self.given = Given::KeptToWrite;
            self.out.push(QueueEffect::WriteUndelivered);
            return true;
        }
        let waiting = self.first(|item| matches!(item.place, Place::Prompt { .. }));
        let Some(token) = waiting else { return false };
        let Some(at) = self.find(token, |_| true) else { return false };
        let Place::Prompt { interrupts, follows } = self.items[at].place else { return false };
        if self.facts.is_working && !interrupts {
            self.items.remove(at);
            self.out.push(QueueEffect::Refuse { token, refusal: QueueRefusal::AgentBusy });
        } else {
            self.move_to(token, Place::InHand);
            self.given = Given::ToWrite(token);
            self.out.push(QueueEffect::WritePrompt { token, is_follow_up: follows });
        }
        true
    }

    fn take_turn(&mut self, lane: Lane) -> bool {
        if self.items.iter().any(|item| item.has_turn && item.command.lane == lane) {
            return false;
        }
        let Some(token) = self.first(|item| in_lane(item, lane)) else { return false };
        let Some(at) = self.find(token, |_| true) else { return false };
        if self.items[at].command.when_idle && lane == Lane::Session && !self.is_idle() {
            return false;
        }
        self.items[at].has_turn = true;
        self.move_to(token, Place::InHand);
        self.out.push(QueueEffect::Execute { token });
        true
    }

    fn is_idle(&self) -> bool {
        let gives_work = |item: &Item| match item.place {
            Place::Prompt { .. } => true,
            Place::WithAgent(work) => work.turns_before().is_some(),
            _ => false,
        };
        !self.facts.is_working
            && self.given == Given::Nobody
            && !self.kept_goes_now()
            && !self.items.iter().any(gives_work)
    }
}
