#include "shell/zmtp/commands.hpp"

namespace partc::shell::zmtp {
namespace {

class Null : public Mechanism {
 public:
  explicit Null(Role role) : role_(role) {}

  std::string_view name() const override { return "NULL"; }
  std::string begin() override { return command("READY", metadata(role_)); }
  std::size_t overhead() const override { return 0; }

  Step take(std::string_view bytes) override {
    const auto found = parse_command(bytes);
    if (!found) return {Step::Kind::broken, {}};
    if (found->name == "ERROR") return {Step::Kind::refused, {}};
    const bool is_ready = found->name == "READY" && accepts(role_, found->data);
    return {is_ready ? Step::Kind::stands : Step::Kind::broken, {}};
  }

  void write(std::string& wire, Plain plain, std::string_view content) override {
    write_head(wire, (plain.has_more ? kMore : 0) | (plain.is_command ? kCommand : 0), content.size());
    wire += content;
  }

  std::optional<Plain> read(unsigned char flags, char*, std::size_t) override {
    return Plain{(flags & kMore) != 0, (flags & kCommand) != 0};
  }

 private:
  Role role_;
};

}  // namespace

std::unique_ptr<Mechanism> make_null(Role role) { return std::make_unique<Null>(role); }

}  // namespace partc::shell::zmtp
