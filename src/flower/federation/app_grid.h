/// \file  Implements Grid with an app of Flower inside a SuperLink. The app connects to a Unix socket and carries out
/// the requests of this class. docs/json-lines.md, "The grid", describes the protocol.
#pragma once

#include <map>

#include "flower/federation/grid.h"
#include "flower/format/record_lines.h"

namespace evenkeel::flower {

/// Sends each call of Grid as a request to the app. All calls but forget() throw Interrupted when the app has gone, and
/// kData when it reports an error.
class AppGrid : public Grid {
 public:
  /// Listens at `socket` and waits for the app to connect.
  /// \param stop  polled while waiting for the app, and once per wait(); true ends the wait
  /// \throws Interrupted when stopped, kData when the app speaks another version of the protocol
  AppGrid(const std::filesystem::path& socket, StopWaiting stop);

  std::vector<NodeInfo> nodes() override;
  bool knows_keys() const override { return false; }
  std::string send(uint64_t node, const Content& content, SendOptions options) override;
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline) override;
  void forget(const std::string& message_id) override;
  void done(const std::filesystem::path& folder) override;
  void failed(const std::string& why) override;

 private:
  /// Sends a request and returns the app's answer. \throws kData with the app's error message; Interrupted when the app
  /// has ended the connection
  Line ask(OrderedJson request, const std::shared_ptr<SharedMemory>& memory = {});
  /// Returns shared memory with the arrays of `content`; null without arrays. Consecutive messages with the same arrays
  /// share one.
  const std::shared_ptr<SharedMemory>& memory_of(const Content& content);

  StopWaiting stop_;
  LineListener listener_;
  LineSocket lines_;
  struct Sent {
    uint64_t node;
    BufferAllocator place;
  };
  std::map<std::string, Sent> sent_;            // by message id
  std::shared_ptr<const PackedArrays> packed_;  // the arrays that memory_ holds
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace evenkeel::flower
