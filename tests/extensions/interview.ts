// Asks an interview, and dialogs whose time may run out. Each tells by a notification `NAME: JSON` what came back, or
// `NAME threw: MESSAGE`.
import type { ExtensionAPI, ExtensionCommandContext } from "@earendil-works/pi-coding-agent";

type Ask = (ui: ExtensionCommandContext["ui"], args: string) => Promise<unknown>;

interface Quarterdeck {
	interview(form: { title: string; questions: object[]; timeout?: number }): Promise<Record<string, unknown> | undefined>;
}

const quarterdeck = () => (globalThis as unknown as { quarterdeck: Quarterdeck }).quarterdeck;

const questions = [
	{ id: "name", question: "What is it called?", required: true },
	{ id: "kind", type: "select", question: "Which kind?", options: ["app", "library"], default: "app" },
];

const asks: Record<string, Ask> = {
	// `/ask-interview 200` gives up by itself after 200 ms.
	"ask-interview": (_ui, args) => quarterdeck().interview({ title: "New project", questions, timeout: Number(args) || undefined }),
	"ask-select": (ui, args) => ui.select("Pick", ["a", "b"], { timeout: Number(args) || undefined }),
	"ask-confirm": (ui, args) => ui.confirm("Sure?", "Really", { timeout: Number(args) || undefined }),
	"ask-input": (ui, args) => ui.input("Name?", "", { timeout: Number(args) || undefined }),
	"ask-editor": (ui) => ui.editor("Text"),
};

export default function (pi: ExtensionAPI) {
	for (const [name, ask] of Object.entries(asks)) {
		pi.registerCommand(name, {
			description: `test: ${name}`,
			handler: async (args, ctx) => {
				try {
					const answer = await ask(ctx.ui, args);
					ctx.ui.notify(`${name}: ${JSON.stringify(answer ?? null)}`, "info");
				} catch (error) {
					ctx.ui.notify(`${name} threw: ${(error as Error).message}`, "info");
				}
			},
		});
	}

	// A tool that comes while a session runs.
	pi.registerCommand("add-tool", {
		description: "test: another tool",
		handler: async () => {
			pi.registerTool({
				name: "late_tool",
				label: "Late",
				description: "Came late",
				parameters: { type: "object", properties: {} } as never,
				execute: async () => ({ content: [{ type: "text", text: "late" }], details: undefined }),
			});
		},
	});
}
