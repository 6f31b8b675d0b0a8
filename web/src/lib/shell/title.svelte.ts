/** The part of a page that is shown, for the title of the window. The shell writes the title: it has the number that needs you in it. */
class TitlePart {
  text = $state("");
}

export const titlePart = new TitlePart();

/** Names the part of the page that is shown, for as long as it is. Call it while the component is made. */
export function useTitlePart(text: () => string): void {
  $effect(() => {
    titlePart.text = text();
    return () => (titlePart.text = "");
  });
}
