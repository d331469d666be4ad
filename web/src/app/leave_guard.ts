/** Asks before a page is left on which something would be lost: unsaved changes, or a call. */

import { useEffect } from "preact/hooks";

import { t } from "../texts";

/** Parameters that name the object on a page. */
const OBJECTS = ["number", "tool"];

interface Guard {
  question: string;
  /** The page and the object on it. */
  shown: string;
  /** The whole address. */
  at: string;
}

const guards: Guard[] = [];

/** See links and the browser's back and forward buttons before the router: to be called before the router starts,
 * because listeners of the window run in the order in which they were added. */
export function guardNavigation(): void {
  addEventListener("popstate", onHistory);
  document.addEventListener("click", onClick, true);
}

/** Ask this before another page or object is opened by a link, the browser's buttons, a reload or a closed tab; a
 * reload and a closed tab are asked about in the browser's own words. `null`: nothing would be lost. */
export function useLeaveGuard(question: string | null): void {
  useEffect(() => {
    if (question === null) return;
    const guard = { question, shown: whatIsShown(location), at: location.href };
    guards.push(guard);
    addEventListener("beforeunload", onUnload);
    return () => {
      guards.splice(guards.indexOf(guard), 1);
      if (guards.length === 0) removeEventListener("beforeunload", onUnload);
    };
  }, [question]);
}

/** The guard of a form. */
export function useUnsavedChanges(dirty: boolean): void {
  useLeaveGuard(dirty ? t.actions.leave : null);
}

/** Ask before something else than a link leaves the page. Returns whether the user goes on. */
export function mayLeave(): boolean {
  const questions = new Set(guards.map(({ question }) => question));
  return [...questions].every((question) => confirm(question));
}

function onUnload(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

function onClick(event: MouseEvent): void {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href]") : null;
  if (link === null || staysHere(link, event)) return;
  if (!mayLeave()) stop(event);
}

function onHistory(event: PopStateEvent): void {
  const guard = guards.at(-1);
  if (guard === undefined) return;
  if (whatIsShown(location) === guard.shown) {
    for (const each of guards) each.at = location.href;
  } else if (!mayLeave()) {
    stop(event);
    history.pushState(null, "", guard.at);
  }
}

function staysHere(link: HTMLAnchorElement, event: MouseEvent): boolean {
  return (
    link.target === "_blank" ||
    link.hasAttribute("download") ||
    event.ctrlKey ||
    event.metaKey ||
    event.shiftKey ||
    (link.origin === location.origin && guards.every(({ shown }) => whatIsShown(link) === shown))
  );
}

/** The page of an address and the object on it; other parameters, such as a tab, only change how it is shown. */
function whatIsShown({ pathname, search }: { pathname: string; search: string }): string {
  const parameters = new URLSearchParams(search);
  return [pathname, ...OBJECTS.map((name) => parameters.get(name))].join(" ");
}

function stop(event: Event): void {
  event.preventDefault();
  event.stopImmediatePropagation();
}
