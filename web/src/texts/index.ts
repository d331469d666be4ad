/** The texts of the chosen language. */

import { en, type Texts } from "./en";

export const t: Texts = en;
