// A container's places are where their names say; links can lead no further than the container.

import { Places, WORKSPACE } from "../../tools/places.ts";

export const placesInContainer = (): Places => new Places({ [WORKSPACE]: WORKSPACE, "/mnt/session": "/mnt/session", "/tmp": "/tmp" });
