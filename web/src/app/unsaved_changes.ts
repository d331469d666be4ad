/** The guard of forms: while there are unsaved changes, leaving the page asks first. */

import { useEffect } from "preact/hooks";

import { t } from "../texts";

/** Parameters that name the object on a page. */
const OBJECTS = ["number", "tool"];

let onHistory: ((event: PopStateEvent) => void) | null = null;

/** Let a form see the browser's back and forward buttons before the router: to be called before the router starts,
 * because listeners of the window run in the order in which they were added. */
export function guardHistory(): void {
  addEventListener("popstate", (event) => onHistory?.(event));
}

let isUnsaved = false;

/** Ask before something else than a link leaves the page. Returns whether the user goes on. */
export function mayLeave(): boolean {
  return !isUnsaved || confirm(t.actions.leave);
}

/** Ask before another page or object is opened by a link, the browser's buttons, a reload or a closed tab. */
export function useUnsavedChanges(dirty: boolean): void {
  useEffect(() => {
    if (!dirty) return;
    isUnsaved = true;
    const shown = whatIsShown(location);
    let at = location.href;
    const unload = (event: BeforeUnloadEvent) => event.preventDefault();
    const click = (event: MouseEvent) => {
      const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href]") : null;
      if (link === null || staysHere(link, event)) return;
      if (!confirm(t.actions.leave)) stop(event);
    };
    const back = (event: PopStateEvent) => {
      if (whatIsShown(location) === shown) {
        at = location.href;
      } else if (!confirm(t.actions.leave)) {
        stop(event);
        history.pushState(null, "", at);
      }
    };
    const staysHere = (link: HTMLAnchorElement, event: MouseEvent) =>
      link.target === "_blank" ||
      link.hasAttribute("download") ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      (link.origin === location.origin && whatIsShown(link) === shown);
    addEventListener("beforeunload", unload);
    onHistory = back;
    document.addEventListener("click", click, true);
    return () => {
      isUnsaved = false;
      removeEventListener("beforeunload", unload);
      onHistory = null;
      document.removeEventListener("click", click, true);
    };
  }, [dirty]);
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
