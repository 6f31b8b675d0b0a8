//! What is around the machine: clients that send whatever they like, an agent that starts, works, answers and dies as it
//! likes, and a caller that does what the machine wants. Machine and model get the same inputs and must want the same.

use qd_wire::ErrorCode;
use std::collections::{BTreeMap, VecDeque};

use qd_wire::command_table::Lane;

use super::super::{
    AgentActivity, AgentAnswer, AgentWork, CommandQueue, QueueEffect, QueueInput, QueueLimits, QueuedCommand,
    Undelivered,
};
use super::Seen;
use super::choices::limits;
use super::faults::Fault;
use super::kinds::label;
use super::model::Model;
use super::promises::Promises;
use crate::choices::Choices;
use crate::ledger::SubmissionToken;

/// What a command is, which only the caller knows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CommandKind {
    /// It is done at once.
    Quick,
    /// It takes the caller a while.
    Slow,
    Request,
    Abort,
    /// Restarts the agent.
    Restart,
    Edit {
        is_in_agent: bool,
    },
    Prompt {
        may_interrupt: bool,
        /// Of an extension.
        is_command: bool,
        /// It cannot be written.
        is_broken: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Agent {
    None,
    Starting,
    Ready,
}

pub(super) struct World {
    now: i64,
    machine: CommandQueue,
    model: Model,
    fault: Fault,
    limits: QueueLimits,
    promises: Promises,
    tokens: SubmissionToken,
    kinds: BTreeMap<SubmissionToken, CommandKind>,
    when_idle: Vec<SubmissionToken>,
    held: Vec<(SubmissionToken, bool)>,
    in_hand: Vec<SubmissionToken>,
    /// What the agent was asked and will answer.
    asked: Vec<(SubmissionToken, AgentWork)>,
    /// The prompt that was written last.
    last_written: Option<SubmissionToken>,
    agent: Agent,
    facts: AgentActivity,
    is_delivering: bool,
    effects: VecDeque<QueueEffect>,
    pub(super) seen: Seen,
}

impl World {
    pub(super) fn new(choices: &mut Choices, fault: Fault) -> Self {
        let limits = limits(choices);
        World {
            now: 1_000_000,
            machine: CommandQueue::new(limits),
            model: Model::new(limits),
            fault,
            limits,
            promises: Promises::default(),
            tokens: 0,
            kinds: BTreeMap::new(),
            when_idle: Vec::new(),
            held: Vec::new(),
            in_hand: Vec::new(),
            asked: Vec::new(),
            last_written: None,
            agent: Agent::None,
            facts: AgentActivity::default(),
            is_delivering: false,
            effects: VecDeque::new(),
            seen: Seen::new(),
        }
    }

    /// One thing happens.
    pub(super) fn act(&mut self, choices: &mut Choices) -> Result<(), String> {
        match choices.below(100) {
            0..36 => self.send(choices)?,
            36..52 => self.agent_answers(choices)?,
            52..62 => self.turn(choices)?,
            62..72 => self.agent_comes_or_goes(choices)?,
            72..80 => self.finish_slow(choices)?,
            80..85 => self.release(choices)?,
            85..91 => self.cancel(choices)?,
            91..96 => self.pass_time(choices)?,
            _ => self.inputs_are_left(choices)?,
        }
        self.carry_out(choices)?;
        self.compare()
    }

    /// Machine and model know the same.
    fn compare(&self) -> Result<(), String> {
        let is_same = self.machine.next_deadline() == self.model.deadline()
            && self.machine.is_empty() == self.model.is_empty()
            && self
                .machine
                .unanswered()
                .all(|token| self.machine.work_of(token) == self.model.work_of(token))
            && self.machine.unanswered().count() == self.model.unanswered();
        match is_same {
            true => Ok(()),
            false => Err(format!("the model knows another state than {:?}", self.machine)),
        }
    }

    fn send(&mut self, choices: &mut Choices) -> Result<(), String> {
        self.tokens += 1;
        let token = self.tokens;
        let prompt = CommandKind::Prompt {
            may_interrupt: choices.one_in(2),
            is_command: choices.one_in(5),
            is_broken: choices.one_in(12),
        };
        let edit = CommandKind::Edit { is_in_agent: !choices.one_in(4) };
        let control = [(Lane::Control, prompt), (Lane::Control, edit), (Lane::Control, CommandKind::Abort)];
        let (lane, kind) = match choices.below(20) {
            0..6 => (Lane::Session, prompt),
            6..9 => (
                Lane::Session,
                choices.of(&[
                    CommandKind::Request,
                    CommandKind::Request,
                    CommandKind::Quick,
                    CommandKind::Slow,
                ]),
            ),
            9..12 => {
                (Lane::Shell, choices.of(&[CommandKind::Request, CommandKind::Request, CommandKind::Slow]))
            }
            12..17 => choices.of(&control),
            17 => (Lane::Session, CommandKind::Restart),
            _ => (Lane::Read, choices.of(&[CommandKind::Quick, CommandKind::Request, CommandKind::Slow])),
        };
        let command = QueuedCommand { token, lane, when_idle: choices.one_in(4) };
        if command.when_idle && command.lane == Lane::Session {
            self.when_idle.push(token);
        }
        self.kinds.insert(token, kind);
        self.promises.sent(command);
        if choices.one_in(6) {
            let is_repeat = choices.one_in(3);
            self.held.push((token, is_repeat));
            return self.tell(QueueInput::Hold { command, is_repeat });
        }
        self.tell(QueueInput::Enqueue(command))
    }

    /// Those that a command waited for are done, or have failed.
    fn release(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (token, is_repeat) = self.held.remove(choices.below(self.held.len()));
        if self.promises.is_answered(token) {
            return Ok(());
        }
        if is_repeat || choices.one_in(4) {
            return self.finish(token);
        }
        self.tell(QueueInput::Release { token })
    }

    fn cancel(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.tokens == 0 {
            return Ok(());
        }
        let token = self.tokens - choices.below((self.tokens as usize).min(6)) as SubmissionToken;
        if self.in_hand.contains(&token) || !self.kinds.contains_key(&token) {
            return Ok(());
        }
        self.tell(QueueInput::Cancel { token })
    }

    fn pass_time(&mut self, choices: &mut Choices) -> Result<(), String> {
        let deadline = self.machine.next_deadline().filter(|_| choices.one_in(2));
        let before = self.machine.next_deadline();
        self.now = deadline.map_or(self.now + choices.below(150) as i64, |deadline| deadline.max(self.now));
        self.tell(QueueInput::Tick)?;
        if before.is_some_and(|before| before <= self.now) {
            *self.seen.entry("deadline passed").or_default() += 1;
        }
        Ok(())
    }

    fn finish_slow(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.in_hand.is_empty() {
            return Ok(());
        }
        let token = self.in_hand.remove(choices.below(self.in_hand.len()));
        self.finish(token)
    }

    fn inputs_are_left(&mut self, choices: &mut Choices) -> Result<(), String> {
        if !self.is_delivering {
            self.facts.undelivered =
                choices.of(&[Undelivered::Now, Undelivered::WithNextPrompt, Undelivered::Nothing]);
        }
        self.tell(QueueInput::Tick)
    }

    fn turn(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.agent != Agent::Ready {
            return Ok(());
        }
        self.facts.is_working = !self.facts.is_working;
        self.facts.turns += u64::from(self.facts.is_working);
        if self.facts.is_working && choices.one_in(6) {
            // A short one is over before anybody looks.
            self.facts.is_working = false;
        }
        self.tell(QueueInput::Activity(self.facts))
    }

    fn agent_comes_or_goes(&mut self, choices: &mut Choices) -> Result<(), String> {
        match self.agent {
            Agent::Starting if !choices.one_in(5) => {
                self.agent = Agent::Ready;
                self.tell(QueueInput::AgentReady)
            }
            Agent::Starting if choices.one_in(3) => {
                // Once more, in another way.
                self.agent_gone()?;
                self.agent = Agent::Starting;
                Ok(())
            }
            Agent::Starting => self.agent_fails(choices.one_in(4)),
            Agent::Ready if choices.one_in(3) => self.agent_fails(false),
            Agent::Ready | Agent::None => Ok(()),
        }
    }

    fn agent_gone(&mut self) -> Result<(), String> {
        self.agent = Agent::None;
        self.facts.is_working = false;
        self.is_delivering = false;
        self.asked.retain(|(_, work)| !matches!(work, AgentWork::Delivery { .. } | AgentWork::Start));
        self.promises.agent_gone();
        self.last_written = None;
        self.tell(QueueInput::AgentGone)
    }

    fn agent_fails(&mut self, with_lanes: bool) -> Result<(), String> {
        self.agent_gone()?;
        self.tell(QueueInput::RefuseWaiting { error: ErrorCode::AgentGone.with("it died"), with_lanes })
    }

    /// The agent answers something, or what it was asked is lost with it.
    fn agent_answers(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let at = choices.below(self.asked.len());
        let (token, work) = self.asked.remove(at);
        let is_prompt = work.turns_before().is_some();
        let answer = match choices.below(8) {
            0 => AgentAnswer::Refused,
            1..6 if is_prompt && self.agent == Agent::Ready => AgentAnswer::StartsTurn,
            _ => AgentAnswer::Done,
        };
        if is_prompt && answer == AgentAnswer::StartsTurn && !self.facts.is_working && choices.one_in(2) {
            // Its turn began before the yes was heard.
            self.facts.turns += 1;
            self.facts.is_working = true;
        }
        if self.last_written == Some(token) {
            self.promises.prompt_answered(answer == AgentAnswer::StartsTurn);
        }
        if matches!(work, AgentWork::Delivery { .. }) {
            self.is_delivering = false;
            self.facts.undelivered = choices.of(&[Undelivered::Now, Undelivered::Nothing]);
        }
        let is_known = self.machine.work_of(token).is_some();
        self.tell(QueueInput::Answered { token, answer })?;
        match work {
            AgentWork::Delivery { .. } => Ok(()),
            _ if is_known && self.promises.is_answered(token) => {
                // It was given up; only what it did is looked at.
                self.promises.edit_over(token);
                self.tell(QueueInput::Finished { token })
            }
            _ if is_known => self.finish(token),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, token: SubmissionToken) -> Result<(), String> {
        self.promises.answered(token)?;
        self.promises.edit_over(token);
        self.tell(QueueInput::Finished { token })
    }

    /// As the caller does: how the agent stands first, then what happened.
    fn tell(&mut self, input: QueueInput) -> Result<(), String> {
        self.handle(QueueInput::Activity(self.facts))?;
        self.handle(input)
    }

    fn handle(&mut self, input: QueueInput) -> Result<(), String> {
        let wanted = self.model.handle(self.now, &input);
        let found = self.fault.handle(&mut self.machine, self.now, input.clone());
        let compared = format_if(found != wanted, || {
            format!("after {input:?} the queue wants {found:?}, the model {wanted:?}")
        });
        for effect in &found {
            let checked = self.promises.check(self.now, self.facts.turns, self.limits.prompt_wait_ms, effect);
            checked.map_err(|broken| {
                format!("{broken}; {}", compared.as_deref().unwrap_or("the model agrees"))
            })?;
        }
        if let Some(complaint) = compared {
            return Err(complaint);
        }
        self.effects.extend(found);
        Ok(())
    }

    /// Does what is wanted; what that leads to goes before the rest.
    fn carry_out(&mut self, choices: &mut Choices) -> Result<(), String> {
        let mut waiting = std::mem::take(&mut self.effects);
        while let Some(effect) = waiting.pop_front() {
            *self.seen.entry(label(&effect)).or_default() += 1;
            self.carry_out_one(effect, choices)?;
            for new in std::mem::take(&mut self.effects).into_iter().rev() {
                waiting.push_front(new);
            }
        }
        Ok(())
    }

    fn carry_out_one(&mut self, effect: QueueEffect, choices: &mut Choices) -> Result<(), String> {
        match effect {
            QueueEffect::Execute { token } | QueueEffect::ExecuteParked { token } => self.execute(token),
            QueueEffect::StartAgent => {
                if self.agent == Agent::None {
                    self.agent = Agent::Starting;
                }
                Ok(())
            }
            QueueEffect::AnswerStart { token } => self.finish(token),
            QueueEffect::WritePrompt { token, .. } => self.write_prompt(token),
            QueueEffect::WriteUndelivered => self.write_undelivered(choices),
            QueueEffect::EditQueue { token } => {
                if self.kinds[&token] == (CommandKind::Edit { is_in_agent: true })
                    && self.agent == Agent::Ready
                {
                    return self.ask(token, AgentWork::QueueEdit);
                }
                self.finish(token)
            }
            QueueEffect::AbortTurn
            | QueueEffect::Forget { .. }
            | QueueEffect::GiveUp { .. }
            | QueueEffect::Refuse { .. }
            | QueueEffect::FailDependencies { .. }
            | QueueEffect::TimeOut { .. }
            | QueueEffect::Lose { .. } => Ok(()),
        }
    }

    fn execute(&mut self, token: SubmissionToken) -> Result<(), String> {
        if self.when_idle.contains(&token) && self.facts.turns > 0 {
            *self.seen.entry("waited for idle").or_default() += 1;
        }
        match self.kinds[&token] {
            CommandKind::Quick => self.finish(token),
            CommandKind::Slow => {
                self.in_hand.push(token);
                Ok(())
            }
            CommandKind::Edit { .. } => self.tell(QueueInput::EditQueue { token }),
            CommandKind::Restart => {
                self.agent_fails(false)?;
                self.agent = Agent::Starting;
                self.tell(QueueInput::Running { token, work: AgentWork::Start })
            }
            CommandKind::Abort if self.agent != Agent::Ready => self.finish(token),
            _ if self.agent != Agent::Ready => {
                self.promises.parked(token);
                if self.when_idle.contains(&token) {
                    self.promises.lane_released(token);
                }
                self.tell(QueueInput::Park { token })
            }
            CommandKind::Request => self.ask(token, AgentWork::Request),
            CommandKind::Abort => self.ask(token, AgentWork::Abort),
            CommandKind::Prompt { may_interrupt, .. } => {
                self.tell(QueueInput::EnqueuePrompt { token, may_interrupt })
            }
        }
    }

    fn ask(&mut self, token: SubmissionToken, work: AgentWork) -> Result<(), String> {
        self.asked.push((token, work));
        self.tell(QueueInput::Running { token, work })
    }

    fn write_prompt(&mut self, token: SubmissionToken) -> Result<(), String> {
        let CommandKind::Prompt { is_command, is_broken, .. } = self.kinds[&token] else {
            return Err(format!("command {token} is no prompt"));
        };
        if is_broken || self.agent != Agent::Ready {
            return self.finish(token);
        }
        self.written(token, AgentWork::Prompt { turns_before: self.facts.turns });
        if is_command {
            self.promises.lane_released(token);
        }
        self.tell(QueueInput::PromptWritten { token, is_command })
    }

    fn written(&mut self, token: SubmissionToken, work: AgentWork) {
        self.promises.written(self.now, self.facts.turns);
        self.last_written = Some(token);
        self.asked.push((token, work));
    }

    fn write_undelivered(&mut self, choices: &mut Choices) -> Result<(), String> {
        if !self.machine.is_delivery_awaited() {
            return Ok(());
        }
        self.facts.undelivered = Undelivered::Nothing;
        if choices.one_in(5) {
            return self.tell(QueueInput::DeliveryNotWritten { is_refused: choices.one_in(2) });
        }
        self.tokens += 1;
        let token = self.tokens;
        self.is_delivering = true;
        self.written(token, AgentWork::Delivery { turns_before: self.facts.turns });
        self.tell(QueueInput::DeliveryWritten { token })
    }

    /// Everything comes to its end, and nothing is left.
    pub(super) fn wind_down(&mut self, choices: &mut Choices) -> Result<(), String> {
        if choices.one_in(3) {
            self.tell(QueueInput::Close)?;
            self.carry_out(choices)?;
            return self.promises.all_are_answered();
        }
        for _ in 0..400 {
            self.release(choices)?;
            self.carry_out(choices)?;
            self.finish_slow(choices)?;
            self.carry_out(choices)?;
            if self.agent == Agent::Starting {
                self.agent = Agent::Ready;
                self.tell(QueueInput::AgentReady)?;
                self.carry_out(choices)?;
            }
            self.agent_answers(choices)?;
            self.carry_out(choices)?;
            if self.facts.is_working {
                self.turn(choices)?;
                self.carry_out(choices)?;
            }
            if self.machine.is_empty() {
                break;
            }
            self.now += self.limits.prompt_wait_ms;
            self.tell(QueueInput::Tick)?;
            self.carry_out(choices)?;
        }
        self.promises.all_are_answered()?;
        format_if(!self.machine.is_empty(), || format!("something is left: {:?}", self.machine))
            .map_or(Ok(()), Err)
    }
}

fn format_if(is_so: bool, text: impl FnOnce() -> String) -> Option<String> {
    is_so.then(text)
}
