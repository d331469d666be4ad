/** The colours: light, dark, or as the system says. The choice is kept in this browser. */

import { computed, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "theme";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", ({ matches }) => {
  systemIsDark.value = matches;
});
export const theme = signal<Theme>(stored());
/** What is painted with the colours of the page is to be painted again when this changes. */
export const isDark = computed(() => (theme.value === "system" ? systemIsDark.value : theme.value === "dark"));

export function applyTheme(chosen: Theme = theme.value): void {
  if (chosen === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEY);
  } else {
    document.documentElement.dataset.theme = chosen;
    localStorage.setItem(KEY, chosen);
  }
  theme.value = chosen;
}

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}
