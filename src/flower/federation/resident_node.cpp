#include "flower/federation/resident_node.h"

#include "base/plain/file_lock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"
#include "flower/federation/rows_error.h"
#include "flower/format/flwr_message.h"
#include "flower/format/record_lines.h"

namespace evenkeel::flower {
namespace {

OrderedJson refusal(const std::string& why, ErrorCode code) {
  return {{"ok", false}, {"error", why}, {"code", static_cast<int64_t>(code)}};
}

class ResidentNode {
 public:
  ResidentNode(const NodeClientOptions& options, const StopWaiting& stop) : client_(options), stop_(stop) {}

  /// Records an event of this process.
  void note(fed::AuditKind kind, const std::string& outcome) {
    client_.record().add({.kind = kind, .name = "this node", .outcome = outcome});
  }

  /// Serves one request of a ClientApp.
  void attend(LineSocket lines) {
    const auto request = lines.receive(stop_);
    if (!request) return;
    const JsonView view(request->json, "a ClientApp", kData);
    if (!answer(lines, view, request->memory)) return;
    const auto taken = lines.receive(stop_);
    if (taken && JsonView(taken->json, "a ClientApp", kData).string_or("op", "") == "taken")
      client_.delivered();
    else
      client_.not_delivered("the ClientApp did not confirm that it took the answer");
  }

 private:
  /// Sends an answer or a refusal. \return true for an answer
  bool answer(LineSocket& lines, const JsonView& request, const std::shared_ptr<SharedMemory>& memory) {
    try {
      request.require(request.at("op").string() == "answer", ".op is \"", shown(request.at("op").string()),
                      "\", expected answer");
      request.require(request.at("version").integer() == kAppProtocol, ".version is ", request.at("version").integer(),
                      ", expected ", kAppProtocol);
    } catch (const Error& error) {
      lines.send(refusal(error.what(), ErrorCode::kPrecondition));
      return false;
    }
    try {
      const auto envelope = client_.answer(received(request, memory));
      const auto content = EnvelopePacker().content(envelope);
      lines.send({{"ok", true}, {"records", records_of(content)}}, images_of(content));
      return true;
    } catch (const Error& error) {
      log::warning("[node] ", error.what());
      lines.send(refusal(reason_for_server(error), ErrorCode::kRaised));
      return false;
    }
  }

  Envelope received(const JsonView& request, const std::shared_ptr<SharedMemory>& memory) {
    IncomingEnvelope incoming(
        "the server", [this](const Envelope& envelope, int64_t bytes) { return client_.consent(envelope, bytes); });
    read_records(request.at("records"), memory.get(), incoming.allocator());
    return incoming.envelope();
  }

  NodeClient client_;
  const StopWaiting& stop_;
};

}  // namespace

void run_resident_node(const fs::path& socket, const NodeClientOptions& options, const StopWaiting& stop) {
  make_folders(options.folder);
  const FileLock lock(options.folder / "link.lock", concat("the node's folder ", options.folder.string()));
  LineListener listener(socket);
  ResidentNode node(options, stop);
  log::info("[node] listening at ", socket.string());
  node.note(fed::AuditKind::kStart, concat("evenkeel ", version(), ", for Flower's ClientApps"));
  while (auto lines = listener.accept(stop)) {
    try {
      node.attend(std::move(*lines));
    } catch (const Error& error) {  // concerns this ClientApp only
      log::warning("[node] ", error.what());
    }
  }
  node.note(fed::AuditKind::kStop, "stopped");
  log::info("[node] stopped");
}

}  // namespace evenkeel::flower
