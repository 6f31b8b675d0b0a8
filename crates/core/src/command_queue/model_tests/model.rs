//! The queue once more, as plainly as possible: one list of commands that is searched from the start for everything.
//! Nothing here is shared with the machine but its types.

use qd_wire::CodedError;

use qd_wire::command_table::Lane;

use super::super::{
    AgentActivity, AgentAnswer, AgentWork, QueueEffect, QueueInput, QueueLimits, QueueRefusal, QueuedCommand,
    Undelivered,
};
use super::command::{GivenPrompt, KEPT, ModelCommand, ModelPlace, in_lane, is_kept};
use crate::ledger::SubmissionToken;

pub(super) struct Model {
    limits: QueueLimits,
    items: Vec<ModelCommand>,
    orders: i64,
    given: GivenPrompt,
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
            given: GivenPrompt::Nobody,
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
                self.add(command, ModelPlace::Held { repeats: is_repeat, since: now });
            }
            QueueInput::Release { token } => {
                if let Some(item) = self.remove(token, |place| matches!(place, ModelPlace::Held { .. })) {
                    self.arrive(item.command);
                }
            }
            QueueInput::Enqueue(command) => self.arrive(command),
            QueueInput::Park { token } => {
                let max = self.limits.parked_max;
                if self.leave_hand(token, ModelPlace::Parked, max, QueueRefusal::TooManyParked { max }) {
                    self.out.push(QueueEffect::StartAgent);
                }
            }
            QueueInput::EnqueuePrompt { token, may_interrupt } => {
                let follows = !may_interrupt && self.has_kept();
                let place = ModelPlace::Prompt { interrupts: may_interrupt || follows, follows };
                let max = self.limits.prompts_max;
                self.leave_hand(token, place, max, QueueRefusal::TooManyPrompts { max });
            }
            QueueInput::EditQueue { token } => {
                // One that need not wait needs no room.
                let room = if self.is_edited() { self.limits.edits_max } else { usize::MAX };
                let max = self.limits.edits_max;
                self.leave_hand(token, ModelPlace::Edit, room, QueueRefusal::TooManyEdits { max });
            }
            QueueInput::PromptWritten { token, is_command } => self.prompt_written(now, token, is_command),
            QueueInput::DeliveryWritten { token } => self.kept_written(now, token),
            QueueInput::DeliveryNotWritten { is_refused } => {
                self.given = GivenPrompt::Nobody;
                self.kept_refused = is_refused;
            }
            QueueInput::Running { token, work } => self.runs(token, work),
            QueueInput::Answered { token, answer } => self.answered(token, answer),
            QueueInput::Finished { token } => {
                let is_over = |place: ModelPlace| {
                    matches!(
                        place,
                        ModelPlace::Held { .. }
                            | ModelPlace::InHand
                            | ModelPlace::WithAgent(_)
                            | ModelPlace::Late
                    )
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
        if let GivenPrompt::Written { turns, accepted: true, .. } = self.given
            && facts.turns > turns
        {
            self.given = GivenPrompt::Nobody;
        }
    }

    fn agent_gone(&mut self) {
        self.agent = false;
        self.given = GivenPrompt::Nobody;
        self.abort_after = None;
        self.items.retain(|item| !KEPT(item));
        for item in &mut self.items {
            if item.place == ModelPlace::WithAgent(AgentWork::Abort) {
                item.place = ModelPlace::WithAgent(AgentWork::Request);
            }
        }
    }

    fn time_passes(&mut self, now: i64) {
        let wait = self.limits.dependency_wait_ms;
        let is_over = |item: &ModelCommand| matches!(item.place, ModelPlace::Held { repeats: false, since } if since + wait <= now);
        for token in self.sorted(|item| is_over(item)) {
            self.remove(token, |_| true);
            self.out.push(QueueEffect::FailDependencies { token });
        }
        if let GivenPrompt::Written { at, .. } = self.given
            && at + self.limits.prompt_wait_ms <= now
        {
            self.given = GivenPrompt::Nobody;
        }
    }

    fn prompt_written(&mut self, now: i64, token: SubmissionToken, is_command: bool) {
        if let Some(at) = self.find(token, |place| place == ModelPlace::InHand) {
            let work = AgentWork::Prompt { turns_before: self.facts.turns };
            self.items[at].place = ModelPlace::WithAgent(work);
            self.items[at].has_turn &= !is_command;
            self.given = GivenPrompt::Written { token, at: now, turns: self.facts.turns, accepted: false };
        }
    }

    fn kept_written(&mut self, now: i64, token: SubmissionToken) {
        let work = AgentWork::Delivery { turns_before: self.facts.turns };
        let command = QueuedCommand { token, lane: Lane::Control, when_idle: false };
        self.add(command, ModelPlace::WithAgent(work));
        self.given = GivenPrompt::Written { token, at: now, turns: self.facts.turns, accepted: false };
    }

    fn runs(&mut self, token: SubmissionToken, work: AgentWork) {
        if let Some(at) = self.find(token, |place| place == ModelPlace::InHand) {
            self.items[at].place = ModelPlace::WithAgent(work);
            let is_written = matches!(self.given, GivenPrompt::Written { .. });
            if work == AgentWork::Abort && is_written && !self.facts.is_working {
                self.abort_after = Some(self.facts.turns);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<i64> {
        let held = self.items.iter().filter_map(|item| match item.place {
            ModelPlace::Held { repeats: false, since } => Some(since + self.limits.dependency_wait_ms),
            _ => None,
        });
        let written = match self.given {
            GivenPrompt::Written { at, .. } => Some(at + self.limits.prompt_wait_ms),
            _ => None,
        };
        held.chain(written).min()
    }

    pub(super) fn work_of(&self, token: SubmissionToken) -> Option<AgentWork> {
        let item = self.items.iter().find(|item| item.command.token == token)?;
        match item.place {
            ModelPlace::WithAgent(work) | ModelPlace::GivenUp(work) => Some(work),
            _ => None,
        }
    }

    pub(super) fn unanswered(&self) -> usize {
        let is_asked =
            |item: &&ModelCommand| matches!(item.place, ModelPlace::WithAgent(_) | ModelPlace::GivenUp(_));
        self.items.iter().filter(is_asked).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_given_up = |item: &ModelCommand| matches!(item.place, ModelPlace::GivenUp(_));
        self.items.iter().all(is_given_up) && self.given == GivenPrompt::Nobody && !self.is_edited()
    }

    fn add(&mut self, command: QueuedCommand, place: ModelPlace) {
        self.orders += 1;
        let order = self.orders;
        self.items.push(ModelCommand { command, place, order, has_turn: false, is_editing: false });
    }

    fn find(&self, token: SubmissionToken, is_place: impl Fn(ModelPlace) -> bool) -> Option<usize> {
        self.items.iter().position(|item| item.command.token == token && is_place(item.place))
    }

    fn remove(
        &mut self,
        token: SubmissionToken,
        is_place: impl Fn(ModelPlace) -> bool,
    ) -> Option<ModelCommand> {
        self.find(token, is_place).map(|at| self.items.remove(at))
    }

    /// Those of some kind, in the order in which they came to where they are.
    fn tokens(&self, is_one: impl Fn(&ModelCommand) -> bool) -> Vec<SubmissionToken> {
        let mut found: Vec<&ModelCommand> = self.items.iter().filter(|item| is_one(item)).collect();
        found.sort_by_key(|item| item.order);
        found.into_iter().map(|item| item.command.token).collect()
    }

    /// The first of them.
    fn first(&self, is_one: impl Fn(&ModelCommand) -> bool) -> Option<SubmissionToken> {
        let found = self.items.iter().filter(|item| is_one(item));
        found.min_by_key(|item| item.order).map(|item| item.command.token)
    }

    fn sorted(&self, is_one: impl Fn(&ModelCommand) -> bool) -> Vec<SubmissionToken> {
        let mut tokens = self.tokens(is_one);
        tokens.sort_unstable();
        tokens
    }

    fn move_to(&mut self, token: SubmissionToken, place: ModelPlace) {
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
            Lane::Session | Lane::Shell => return self.add(command, ModelPlace::InLane),
            Lane::Control | Lane::Read | Lane::Service => {
                self.add(command, ModelPlace::InHand);
                return self.out.push(QueueEffect::Execute { token: command.token });
            }
        };
        self.out.push(QueueEffect::Refuse { token: command.token, refusal });
    }

    /// A command in hand goes to another place, if there is room.
    fn leave_hand(
        &mut self,
        token: SubmissionToken,
        place: ModelPlace,
        max: usize,
        full: QueueRefusal,
    ) -> bool {
        if self.find(token, |place| place == ModelPlace::InHand).is_none() {
            return false;
        }
        let same =
            |item: &&ModelCommand| std::mem::discriminant(&item.place) == std::mem::discriminant(&place);
        if self.items.iter().filter(same).count() >= max {
            self.remove(token, |_| true);
            self.no_more(token);
            self.out.push(QueueEffect::Refuse { token, refusal: full });
            return false;
        }
        self.move_to(token, place);
        true
    }

    fn answered(&mut self, token: SubmissionToken, answer: AgentAnswer) {
        let Some(work) = self.work_of(token) else { return };
        let is_given_up = self.find(token, |place| matches!(place, ModelPlace::GivenUp(_))).is_some();
        let starts = answer == AgentAnswer::StartsTurn;
        match work {
            AgentWork::Prompt { .. } if !starts => self.abort_after = None,
            AgentWork::Delivery { .. } if answer == AgentAnswer::Refused => self.kept_refused = true,
            _ => {}
        }
        if let GivenPrompt::Written { token: own, turns, accepted, .. } = &mut self.given
            && *own == token
        {
            *accepted = true;
            if !starts || self.facts.turns > *turns {
                self.given = GivenPrompt::Nobody;
            }
        }
        let is_editing = self.items.iter().any(|item| item.command.token == token && item.is_editing);
        if is_given_up && is_editing {
            self.move_to(token, ModelPlace::Late);
        } else if is_given_up || is_kept(ModelPlace::WithAgent(work)) {
            self.remove(token, |_| true);
        } else {
            self.move_to(token, ModelPlace::InHand);
        }
    }

    /// A command is over.
    fn no_more(&mut self, token: SubmissionToken) {
        if self.given == GivenPrompt::ToWrite(token) {
            self.given = GivenPrompt::Nobody;
        }
        for item in self.items.iter_mut().filter(|item| item.command.token == token) {
            (item.has_turn, item.is_editing) = (false, false);
        }
    }

    fn cancel(&mut self, token: SubmissionToken) {
        let waits = |place: ModelPlace| {
            matches!(
                place,
                ModelPlace::Held { repeats: false, .. }
                    | ModelPlace::InLane
                    | ModelPlace::Parked
                    | ModelPlace::Prompt { .. }
                    | ModelPlace::Edit
            )
        };
        if self.remove(token, waits).is_some() {
            self.no_more(token);
            return self.out.push(QueueEffect::TimeOut { token });
        }
        let runs = |place: ModelPlace| matches!(place, ModelPlace::WithAgent(_)) && !is_kept(place);
        let Some(at) = self.find(token, runs) else { return };
        let ModelPlace::WithAgent(work) = self.items[at].place else { return };
        self.items[at].place = ModelPlace::GivenUp(work);
        self.items[at].has_turn = false;
        self.out.push(QueueEffect::GiveUp { token });
        let given_up = self.sorted(|item| matches!(item.place, ModelPlace::GivenUp(_)));
        if given_up.len() > self.limits.given_up_max {
            self.remove(given_up[0], |_| true);
            self.out.push(QueueEffect::Forget { token: given_up[0] });
        }
    }

    fn agent_ready(&mut self) {
        self.agent = true;
        self.kept_refused = false;
        let starts = self.sorted(|item| item.place == ModelPlace::WithAgent(AgentWork::Start));
        self.forget_starts();
        for token in starts {
            self.move_to(token, ModelPlace::InHand);
            self.out.push(QueueEffect::AnswerStart { token });
        }
        for token in self.tokens(|item| item.place == ModelPlace::Parked) {
            let Some(at) = self.find(token, |_| true) else { continue };
            let item = &mut self.items[at];
            if item.command.when_idle && item.has_turn && item.command.lane == Lane::Session {
                item.has_turn = false;
                item.place = ModelPlace::InLane;
                item.order = 0;
            } else {
                self.move_to(token, ModelPlace::InHand);
                self.out.push(QueueEffect::ExecuteParked { token });
            }
        }
    }

    fn forget_starts(&mut self) {
        for token in self.sorted(|item| item.place == ModelPlace::GivenUp(AgentWork::Start)) {
            self.remove(token, |_| true);
            self.out.push(QueueEffect::Forget { token });
        }
    }

    fn refuse_waiting(&mut self, error: &CodedError, with_lanes: bool) {
        let mut tokens = self.sorted(|item| item.place == ModelPlace::WithAgent(AgentWork::Start));
        self.forget_starts();
        tokens.extend(self.tokens(|item| item.place == ModelPlace::Parked));
        tokens.extend(self.tokens(|item| matches!(item.place, ModelPlace::Prompt { .. })));
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
        for token in self.sorted(|item| matches!(item.place, ModelPlace::WithAgent(_)) && !KEPT(item)) {
            self.out.push(QueueEffect::Lose { token });
        }
        let mut tokens = self.sorted(|item| matches!(item.place, ModelPlace::Held { .. }));
        tokens.extend(self.sorted(|item| item.place == ModelPlace::InHand));
        for place in [ModelPlace::Parked, ModelPlace::Edit] {
            tokens.extend(self.tokens(|item| item.place == place));
        }
        tokens.extend(self.tokens(|item| in_lane(item, Lane::Session)));
        tokens.extend(self.tokens(|item| in_lane(item, Lane::Shell)));
        tokens.extend(self.tokens(|item| matches!(item.place, ModelPlace::Prompt { .. })));
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
        let has_prompt = self.items.iter().any(|item| matches!(item.place, ModelPlace::Prompt { .. }));
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
        let waiting = self.first(|item| item.place == ModelPlace::Edit);
        let Some(token) = waiting.filter(|_| !self.is_edited()) else { return false };
        self.move_to(token, ModelPlace::InHand);
        self.items
            .iter_mut()
            .filter(|item| item.command.token == token)
            .for_each(|item| item.is_editing = true);
        self.out.push(QueueEffect::EditQueue { token });
        true
    }

    fn write_next(&mut self) -> bool {
        if !self.agent || self.given != GivenPrompt::Nobody || self.is_edited() {
            return false;
        }
        if self.kept_goes_now() {
            self.given = GivenPrompt::KeptToWrite;
            self.out.push(QueueEffect::WriteUndelivered);
            return true;
        }
        let waiting = self.first(|item| matches!(item.place, ModelPlace::Prompt { .. }));
        let Some(token) = waiting else { return false };
        let Some(at) = self.find(token, |_| true) else { return false };
        let ModelPlace::Prompt { interrupts, follows } = self.items[at].place else { return false };
        if self.facts.is_working && !interrupts {
            self.items.remove(at);
            self.out.push(QueueEffect::Refuse { token, refusal: QueueRefusal::AgentBusy });
        } else {
            self.move_to(token, ModelPlace::InHand);
            self.given = GivenPrompt::ToWrite(token);
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
        self.move_to(token, ModelPlace::InHand);
        self.out.push(QueueEffect::Execute { token });
        true
    }

    fn is_idle(&self) -> bool {
        let gives_work = |item: &ModelCommand| match item.place {
            ModelPlace::Prompt { .. } => true,
            ModelPlace::WithAgent(work) => work.turns_before().is_some(),
            _ => false,
        };
        !self.facts.is_working
            && self.given == GivenPrompt::Nobody
            && !self.kept_goes_now()
            && !self.items.iter().any(gives_work)
    }
}
