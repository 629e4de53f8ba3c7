"""The workspace's pages: rows become view models here, and templates turn those into HTML."""
