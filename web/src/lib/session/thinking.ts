import type { ModelInfo, ModelRef } from "@quarterdeck/client";

/** What is offered where the model does not say what it has. */
const USUAL_LEVELS: readonly string[] = ["off", "minimal", "low", "medium", "high", "xhigh"];

/** How long a model can be told to think; a model nobody knows is offered the usual. */
export function thinkingLevels(models: readonly ModelInfo[], wanted: ModelRef | undefined): readonly string[] {
  const known = models.find((model) => model.model_id === wanted?.model_id && model.provider === wanted.provider);
  return known?.thinking_levels ?? USUAL_LEVELS;
}

export function levelName(level: string): string {
  return level === "xhigh" ? "very high" : level;
}
