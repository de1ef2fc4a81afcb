#include "fed/store/audit.h"

#include "base/format/record.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"

namespace evenkeel::fed {
namespace {

constexpr size_t kMostName = 200, kMostOutcome = 1000;  // bytes of texts, of which others send some

/// Returns the event with texts of one line each, in UTF-8.
AuditEvent in_one_line(AuditEvent event) {
  for (auto* text : {&event.key, &event.name, &event.run, &event.digest, &event.peer}) *text = shown(*text, kMostName);
  event.outcome = shown(event.outcome, kMostOutcome);
  return event;
}

OrderedJson line_of(const AuditEvent& event) {
  OrderedJson line{{"kind", std::string(config::name_of(event.kind))}, {"time", utc_now_ms()}};
  const auto fields = record::write(in_one_line(event));
  for (const auto& [key, value] : fields.items()) line[key] = value;
  return line;
}

Flush flush_of(const AuditEvent& event) {
  const bool is_score = event.kind == AuditKind::kReply && event.work == AuditWork::kScore;
  return event.kind == AuditKind::kTask || is_score ? Flush::kLater : Flush::kNow;
}

}  // namespace

AuditLog::AuditLog(fs::path file) : file_(std::move(file)) {
  if (file_.empty() || !path_exists(file_)) return;
  const auto known = check_chain(file_);
  if (known.lines > 0) head_ = known.head;
  if (known.fault) log::warning(known.fault->what(), "; new lines go on behind it");
}

void AuditLog::add(const AuditEvent& event) {
  if (file_.empty()) return;
  if (head_.empty()) make_folders(file_.parent_path());
  head_ = append_chained(file_, line_of(event), flush_of(event));
}

ChainCheck read_audit(const fs::path& file, const std::function<void(const AuditLine&)>& on_line) {
  if (!path_exists(file)) return {};
  return check_chain(file, [&](const ChainedLine& line) {
    auto event = record::read<AuditEvent>(line.view);
    if (on_line) on_line({line.view.at("time").string(), std::move(event), line.digest, line.view.place()});
  });
}

}  // namespace evenkeel::fed
