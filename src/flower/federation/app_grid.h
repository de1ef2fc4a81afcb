/// \file  An app of Flower's as the grid of a served run: it holds the SuperLink's end, and does what it is asked to
/// over a socket (docs/flower-app.md, The grid).
#pragma once

#include <map>

#include "flower/federation/grid.h"
#include "flower/format/record_lines.h"

namespace evenkeel {

class AppGrid : public Grid {
 public:
  /// Listens, and waits for the app. \param stop  asked meanwhile, and between two words
  /// \throws Interrupted when stopped, kData when the app speaks another version
  AppGrid(const std::filesystem::path& socket, wire::StopWaiting stop);

  std::vector<wire::NodeInfo> nodes() override;
  std::string send(uint64_t node, const wire::Content& content, wire::SendOptions options) override;
  std::optional<wire::Arrival> wait(std::chrono::steady_clock::time_point deadline) override;
  void forget(const std::string& message_id) override;
  void done(const std::filesystem::path& folder) override;
  void failed(const std::string& why) override;

 private:
  /// \throws kData with what the app says went wrong; Interrupted when it is gone.
  wire::Line ask(OrderedJson request, const std::shared_ptr<wire::SharedMemory>& memory = {});
  const std::shared_ptr<wire::SharedMemory>& memory_of(const wire::Content& content);

  wire::StopWaiting stop_;
  wire::LineListener listener_;
  wire::LineSocket lines_;
  struct Sent {
    uint64_t node;
    wire::BufferAllocator place;
  };
  std::map<std::string, Sent> sent_;                  // by message
  std::shared_ptr<const wire::PackedArrays> packed_;  // whose images memory_ holds
  std::shared_ptr<wire::SharedMemory> memory_;
};

}  // namespace evenkeel
