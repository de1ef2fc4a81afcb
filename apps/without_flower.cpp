// Replaces the commands of federations in a program that was built without cpp-httplib or protobuf.
#include "apps/commands.h"
#include "apps/served_status.h"
#include "base/plain/error.h"

namespace evenkeel::apps {
namespace {

/// Reports that this program cannot connect to nodes.
[[noreturn]] void fail_absent(std::string_view who) {
  fail(kConfig, who, ": this program was built without the wire of federations, which needs cpp-httplib, protobuf and ",
       "OpenSSL (cmake says which of them was missing)");
}

void add_absent(CLI::App& program, const char* name, const char* what) {
  program.add_subcommand(name, what)->allow_extras()->callback([name] { fail_absent(name); });
}

}  // namespace

bool is_served(const std::filesystem::path& /*run*/) { return false; }
std::string clients_status(const std::filesystem::path& /*run*/) { return {}; }
std::string server_status(const ServerAddress& /*address*/) { fail_absent("status --server"); }

void add_serve_command(CLI::App& program) { add_absent(program, "serve", "the server of a federation (not built)"); }
void add_node_command(CLI::App& program) { add_absent(program, "node", "one client of a federation (not built)"); }
void add_keygen_command(CLI::App& program) { add_absent(program, "keygen", "a key for a node (not built)"); }

}  // namespace evenkeel::apps
