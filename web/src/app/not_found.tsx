import { t } from "../texts";

export function NotFoundPage() {
  return <p class="notice">{t.states.notFound}</p>;
}
