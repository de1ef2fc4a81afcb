/// \file  Errors that say where they happened.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "base/plain/error.h"
#include "base/system/device.h"

namespace evenkeel {

/// Runs `work`; an error says `context` in front of what it says itself. \throws Error; Interrupted as it comes
template <typename Work>
auto in_context(const std::string& context, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.with_context(context);
  } catch (const c10::Error& error) {
    if (const auto full = out_of_device_memory(error); !full.empty()) fail(kIo, context, ": ", full);
    fail(kInternal, context, ": ", error.what_without_backtrace());
  }
}

}  // namespace evenkeel
