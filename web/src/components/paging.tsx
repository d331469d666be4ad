/** Moves through a list page by page. */

import type { Page } from "../api/client";
import { t } from "../texts";

interface Props {
  label: string;
  page: Page<unknown>;
  size: number;
  previous?: string;
  next?: string;
  onMove: (offset: number) => void;
}

export function Paging({ label, page, size, onMove, ...names }: Props) {
  const { total, offset } = page.pagination;
  const last = offset + page.data.length;
  if (offset === 0 && last >= total) return null;
  return (
    <nav class="paging" aria-label={label}>
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - size))}>
        {names.previous ?? t.paging.previous}
      </button>
      <span>{t.paging.pages(offset + 1, last, total)}</span>
      <button type="button" disabled={last >= total} onClick={() => onMove(last)}>
        {names.next ?? t.paging.next}
      </button>
    </nav>
  );
}
