/** The answers to a form while they are given. */
import type { InterviewQuestion } from "@quarterdeck/client";

export type FormValue = string | boolean | string[];
export type FormValues = Record<string, FormValue>;

/** What the form shows at first. */
export function startValues(questions: readonly InterviewQuestion[]): FormValues {
  return Object.fromEntries(questions.map((question) => [question.id, startValue(question)]));
}

function startValue({ type, default: given, options }: InterviewQuestion): FormValue {
  if (type === "confirm") return given === true;
  if (type === "multiselect") return Array.isArray(given) ? given.filter((value): value is string => typeof value === "string") : [];
  if (typeof given === "string" || typeof given === "number") return String(given);
  return type === "select" && options?.length === 1 ? (options[0] ?? "") : "";
}

/** The answers as they are sent: numbers as numbers, nothing for what was left empty. */
export function responsesOf(questions: readonly InterviewQuestion[], values: FormValues): Record<string, unknown> {
  const responses: Record<string, unknown> = {};
  for (const { id, type } of questions) {
    const value = values[id];
    if (value === undefined || value === "" || (Array.isArray(value) && value.length === 0)) continue;
    // A list is copied: the form may change while its answer waits for the connection.
    if (Array.isArray(value)) responses[id] = [...value];
    else responses[id] = type === "number" && typeof value === "string" ? Number(value) : value;
  }
  return responses;
}

/** What is wrong with the answers, by question. */
export function problemsOf(questions: readonly InterviewQuestion[], values: FormValues): Record<string, string> {
  const problems: Record<string, string> = {};
  for (const { id, type, required } of questions) {
    const value = values[id];
    const isEmpty = value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
    if (required && isEmpty) problems[id] = "This needs an answer.";
    else if (type === "number" && !isEmpty && !Number.isFinite(Number(value))) problems[id] = "This must be a number.";
  }
  return problems;
}
