#include "base/plain/error.h"

#include "base/plain/text.h"

namespace evenkeel {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case kConfig:
      return "config";
    case kData:
      return "data";
    case kCheckpoint:
      return "checkpoint";
    case kShape:
      return "shape";
    case kNumeric:
      return "numeric";
    case kIo:
      return "io";
    case kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, std::string message)
    : kind_(kind),
      message_(std::move(message)),
      text_(shown(concat("[", to_string(kind), "] ", message_), kLongestMessage)) {}

Error Error::with_advice(std::string_view advice) const { return Error(kind_, concat(message_, "; ", advice)); }

Error Error::with_context(std::string_view context) const { return Error(kind_, concat(context, ": ", message_)); }

}  // namespace evenkeel
