/** The title of the browser's tab. */

import { useEffect } from "preact/hooks";

import { t } from "../texts";

export function useTitle(page: string): void {
  useEffect(() => {
    document.title = `${page} · ${t.product}`;
  }, [page]);
}
