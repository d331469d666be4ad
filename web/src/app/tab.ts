/** The chosen tab of a page, which its address names: `?tab=` outlasts a reload and can be shared. */

import { useLocation } from "preact-iso";

/** Returns the chosen one of the tabs and what chooses another; `first` is that of an address without `?tab=`. */
export function useTab<Name extends string>(tabs: readonly Name[], first: Name): [Name, (name: Name) => void] {
  const { path, query, route } = useLocation();
  const show = (name: Name) => {
    const parameters = new URLSearchParams(location.search);
    if (name === first) parameters.delete("tab");
    else parameters.set("tab", name);
    route(parameters.size > 0 ? `${path}?${parameters}` : path);
  };
  return [tabs.find((each) => each === query.tab) ?? first, show];
}
