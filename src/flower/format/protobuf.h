/// \file  Serialises and parses protobuf messages. Only calls.cpp and values.cpp include it.
#pragma once

#include <google/protobuf/message_lite.h>

#include <limits>
#include <string>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::flower {

inline std::string bytes_of(const google::protobuf::MessageLite& message) { return message.SerializeAsString(); }

/// Parses `body`.
/// \param what  name of the message, for errors
/// \throws kData when `body` is not such a message
template <typename Message>
Message parsed(std::string_view body, std::string_view what) {
  Message message;
  const bool fits = body.size() <= static_cast<size_t>(std::numeric_limits<int>::max());
  EK_CHECK(fits && message.ParseFromArray(body.data(), static_cast<int>(body.size())), kData, "no ", what, ": ",
           body.size(), " bytes that are not its protobuf");
  return message;
}

}  // namespace evenkeel::flower
