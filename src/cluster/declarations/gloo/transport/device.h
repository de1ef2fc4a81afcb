// Declares two classes that LibTorch's header names; see gloo/context.h.
#pragma once

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
