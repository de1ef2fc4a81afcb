/// \file  A message's content as a line between this program and an app of Flower's: records as JSON, the images of
/// arrays in shared memory (docs/flower-app.md, Records).
#pragma once

#include "flower/format/lines.h"
#include "flower/format/record_dict.h"

namespace evenkeel::wire {

/// The images of all arrays, sealed; null where there are none. Two contents of the same arrays may share one.
std::shared_ptr<SharedMemory> images_of(const Content& content);
/// The line's "records", for that memory.
OrderedJson records_of(const Content& content);

/// \param records  the line's "records" \param place  asked where the data goes, before any of it is looked at
/// \throws kData naming what is wrong, and what `place` throws.
Content read_records(const JsonView& records, const SharedMemory* memory, const BufferAllocator& place,
                     const Limits& limits = {});

}  // namespace evenkeel::wire
