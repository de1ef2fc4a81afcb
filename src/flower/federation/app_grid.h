/// \file  Implements Grid with an app of Flower inside a SuperLink. The app connects to a Unix socket and carries out
/// the requests of this class. docs/flower-app.md, "The grid", describes the protocol.
#pragma once

#include <map>

#include "flower/federation/grid.h"
#include "flower/format/record_lines.h"

namespace evenkeel {

/// Sends each call of Grid as a request to the app. All calls but forget() throw Interrupted when the app has gone, and
/// kData when it reports an error.
class AppGrid : public Grid {
 public:
  /// Listens at `socket` and waits for the app to connect. \param stop polled while waiting for the app, and once per
  /// wait(); true ends the wait
  /// \throws Interrupted when stopped, kData when the app speaks another version of the protocol
  AppGrid(const std::filesystem::path& socket, wire::StopWaiting stop);

  std::vector<wire::NodeInfo> nodes() override;
  std::string send(uint64_t node, const wire::Content& content, wire::SendOptions options) override;
  std::optional<wire::Arrival> wait(std::chrono::steady_clock::time_point deadline) override;
  void forget(const std::string& message_id) override;
  void done(const std::filesystem::path& folder) override;
  void failed(const std::string& why) override;

 private:
  /// Sends a request and returns the app's answer. \throws kData with the app's error message; Interrupted when the app
  /// has ended the connection
  wire::Line ask(OrderedJson request, const std::shared_ptr<wire::SharedMemory>& memory = {});
  /// Returns shared memory with the arrays of `content`; null without arrays. Consecutive messages with the same arrays
  /// share one.
  const std::shared_ptr<wire::SharedMemory>& memory_of(const wire::Content& content);

  wire::StopWaiting stop_;
  wire::LineListener listener_;
  wire::LineSocket lines_;
  struct Sent {
    uint64_t node;
    wire::BufferAllocator place;
  };
  std::map<std::string, Sent> sent_;                  // by message id
  std::shared_ptr<const wire::PackedArrays> packed_;  // the arrays that memory_ holds
  std::shared_ptr<wire::SharedMemory> memory_;
};

}  // namespace evenkeel
