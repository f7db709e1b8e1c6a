"""The aggregated API `ask.makeway.dev`: tenants ask about their own pods, by their own rights."""
