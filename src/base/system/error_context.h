/// \file  Adds context to errors.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "base/plain/error.h"
#include "base/system/device.h"

namespace evenkeel {

/// Calls `work` and returns its result. An Error, or an error of LibTorch, is rethrown as an Error with "`context`: "
/// in front of its message: kIo when the device's memory is full, kInternal for other errors of LibTorch. Other
/// exceptions, e.g. Interrupted, pass unchanged.
template <typename Work>
auto in_context(const std::string& context, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.with_context(context);
  } catch (const c10::Error& error) {
    if (const auto full = device_memory_message(error); !full.empty()) fail(kIo, context, ": ", full);
    fail(kInternal, context, ": ", error.what_without_backtrace());
  }
}

}  // namespace evenkeel
