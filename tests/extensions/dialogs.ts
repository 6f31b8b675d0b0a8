// One command per kind of dialog. Each tells the answer by a notification `NAME: JSON`, where an absent answer
// (cancelled, timed out) is null.
import type { ExtensionAPI, ExtensionCommandContext } from "@earendil-works/pi-coding-agent";

type Ask = (ui: ExtensionCommandContext["ui"], args: string) => Promise<unknown>;

const dialogs: Record<string, Ask> = {
	"dlg-select": (ui) => ui.select("Pick one", ["Allow", "Block"]),
	"dlg-confirm": (ui) => ui.confirm("Sure?", "All will be lost"),
	"dlg-input": (ui) => ui.input("Name?", "type here"),
	"dlg-editor": (ui) => ui.editor("Edit text", "line 1\nline 2"),
	// `/dlg-timeout 200` gives up by itself after 200 ms.
	"dlg-timeout": (ui, args) => ui.select("Quick", ["Yes", "No"], { timeout: Number(args) || 300 }),
};

export default function (pi: ExtensionAPI) {
	for (const [name, ask] of Object.entries(dialogs)) {
		pi.registerCommand(name, {
			description: `test: ${name}`,
			handler: async (args, ctx) => {
				const answer = await ask(ctx.ui, args);
				ctx.ui.notify(`${name}: ${JSON.stringify(answer ?? null)}`, "info");
			},
		});
	}

	// `/notify warning some words`: the level is optional.
	pi.registerCommand("notify", {
		description: "test: a notification",
		handler: async (args, ctx) => {
			const [, level, words] = /^(info|warning|error)?\s*(.*)$/s.exec(args) ?? [];
			ctx.ui.notify(words || "hello", level as "info" | "warning" | "error" | undefined);
		},
	});

	// `/status some words` sets the status, `/status` clears it.
	pi.registerCommand("status", {
		description: "test: a status text",
		handler: async (args, ctx) => ctx.ui.setStatus("test", args || undefined),
	});
}
